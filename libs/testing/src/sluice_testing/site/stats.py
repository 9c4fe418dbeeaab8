"""What was asked of the site and what went out, per path; safe to read while bodies flow."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

#: Exchanges kept per path and paths kept in all; older ones still count in the sums.
MAX_EXCHANGES = 5_000
MAX_PATHS = 20_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer. Times are seconds of `time.time()`."""

    method: str
    target: str
    #: The Range header as sent.
    range: str | None
    status: int
    #: Body bytes handed to the kernel.
    bytes: int
    client: str
    connection: int
    connected_at: float
    started_at: float
    #: None while the answer is being sent.
    ended_at: float | None
    #: None while the client is connected.
    disconnected_at: float | None
    #: Address that it was sent to.
    host: str = ""
    #: The headers Cookie and Authorization as sent.
    cookie: str | None = None
    authorization: str | None = None


@dataclass(frozen=True, slots=True)
class PathStats:
    """Sums for a path since the last reset, and its latest exchanges."""

    requests: int = 0
    bytes: int = 0
    ranges: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    #: Answers being sent now.
    active: int = 0
    #: Connections that asked for this path and are still open.
    connected: int = 0
    exchanges: tuple[Exchange, ...] = ()


@dataclass(slots=True)
class Connection:
    """A client's connection while it lives."""

    number: int
    client: str
    opened: float
    closed: float | None = None


@dataclass(slots=True)
class Record:
    """An exchange under way; written by its own connection's thread alone."""

    method: str
    target: str
    range: str | None
    connection: Connection
    started: float
    host: str = ""
    cookie: str | None = None
    authorization: str | None = None
    status: int = 0
    sent: int = 0
    ended: float | None = None
    #: Held while bytes are handed over and booked; that never waits for the client.
    booking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def snapshot(self) -> Exchange:
        with self.booking:
            sent = self.sent
        return Exchange(
            method=self.method,
            target=self.target,
            range=self.range,
            status=self.status,
            bytes=sent,
            client=self.connection.client,
            connection=self.connection.number,
            connected_at=self.connection.opened,
            started_at=self.started,
            ended_at=self.ended,
            disconnected_at=self.connection.closed,
            host=self.host,
            cookie=self.cookie,
            authorization=self.authorization,
        )


@dataclass(slots=True)
class _Path:
    requests: int = 0
    #: Bytes of records that fell out of the window.
    dropped: int = 0
    records: deque[Record] = field(default_factory=deque)

    def add(self, record: Record) -> None:
        self.requests += 1
        if len(self.records) >= MAX_EXCHANGES:
            self.dropped += self.records.popleft().sent
        self.records.append(record)

    def snapshot(self) -> PathStats:
        exchanges = tuple(record.snapshot() for record in self.records)
        still_open = {e.connection for e in exchanges if e.disconnected_at is None}
        return PathStats(
            requests=self.requests,
            bytes=self.dropped + sum(e.bytes for e in exchanges),
            ranges=tuple(e.range for e in exchanges if e.range is not None),
            statuses=tuple(e.status for e in exchanges),
            active=sum(e.ended_at is None for e in exchanges),
            connected=len(still_open),
            exchanges=exchanges,
        )


class SiteStats:
    """The book of all exchanges."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: dict[str, _Path] = {}
        self._connections = 0

    def connect(self, client: str) -> Connection:
        with self._lock:
            self._connections += 1
            return Connection(self._connections, client, time.time())

    def begin(self, path: str, record: Record) -> None:
        """Book a request under its path, and under path and query when there is one."""
        keys = {path, record.target}
        with self._lock:
            for key in keys:
                if key not in self._paths and len(self._paths) >= MAX_PATHS:
                    del self._paths[next(iter(self._paths))]
                self._paths.setdefault(key, _Path()).add(record)

    def of(self, path: str) -> PathStats:
        """Sums of a path; with a query, of the requests with exactly that query."""
        with self._lock:
            found = self._paths.get(path)
            return found.snapshot() if found else PathStats()

    def all(self) -> dict[str, PathStats]:
        """Sums of every path without its query."""
        with self._lock:
            return {p: s.snapshot() for p, s in self._paths.items() if "?" not in p}

    def reset(self) -> None:
        """Forget everything; answers under way are booked no more."""
        with self._lock:
            self._paths.clear()
