"""Speaks to one client: what it missed, then what happens, until there is nothing more to say."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

from sluice_api.database import Database
from sluice_api.events.departure import Departure
from sluice_api.events.hub import Hub
from sluice_api.events.messages import PING, RETRY, Message, Watch, job_message, retry_soon, wire
from sluice_api.events.start import Start, read_start
from sluice_api.positions import Positions

#: Seconds between comments.
PING_EVERY = 15.0


class Stream:
    """The body of one answer; collects from the moment it is made, and must be closed.

    Args:
        hub: tells what happens.
        database: tells what happened.
        positions: places in the queue.
        watch: what the client wants.
        since: see `start.since_of`.
        still_allowed: asked at each comment; the stream ends when it says no.
        sock: of the client, so that its leaving is noticed; None where it can't be had.

    Raises:
        StoreAwayError: it can't be told what happened.

    """

    def __init__(
        self,
        *,
        hub: Hub,
        database: Database,
        positions: Positions,
        watch: Watch,
        since: float | None,
        still_allowed: Callable[[], bool],
        sock: socket.socket | None = None,
        ping_every: float = PING_EVERY,
    ) -> None:
        self._hub = hub
        self._positions = positions
        self._watch = watch
        self._since = since
        self._still_allowed = still_allowed
        self._ping_every = ping_every
        #: Versions sent at the start: what the hub collected meanwhile may be older.
        self._floor: dict[str, int] = {}
        self._subscription = hub.join(watch)
        self._departure = Departure(sock, self._gone)
        self._start: Start | None = None
        try:
            self._start = database.read(lambda c: read_start(c, watch, since))
        except BaseException:
            self.close()
            raise

    @property
    def start(self) -> Start:
        """What is sent first; known until the stream begins."""
        if self._start is None:
            raise RuntimeError("the stream has begun")
        return self._start

    def _gone(self) -> None:
        self._subscription.go()
        self._hub.leave(self._subscription)

    def close(self) -> None:
        """Idempotent."""
        self._departure.close()
        self._hub.leave(self._subscription)

    def __iter__(self) -> Iterator[bytes]:
        # Thousands of these live for hours: what was sent is not kept.
        start, self._start = self.start, None
        yield b"".join((RETRY, *self._first(start)))
        is_over = self._watch.ends and start.is_over
        del start
        if not is_over:
            yield from self._follow()

    def _first(self, start: Start) -> Iterator[bytes]:
        places = self._positions.find({s.job.id: s.message for s in start.shown if s.message})
        left = len(start.shown)
        if start.is_snapshot:
            yield wire("snapshot", {"jobs": left}, self._id(left))
        for shown in start.shown:
            left -= 1
            self._floor[shown.job.id] = shown.job.version
            view = shown.view(places.get(shown.job.id))
            yield job_message(shown.job, view, self._id(left)).wire

    def _id(self, left: int) -> str:
        """Who leaves before the last of the start knows no more than when it came."""
        return f"{int((self._since or 0) * 1000)}-0" if left else self._hub.event_id()

    def _follow(self) -> Iterator[bytes]:
        subscription = self._subscription
        next_ping = time.monotonic() + self._ping_every
        while not self._hub.is_closing and not subscription.overflowed:
            messages = subscription.take(max(0.0, next_ping - time.monotonic()))
            if subscription.is_gone:
                return
            fresh = [m for m in messages if self._is_fresh(m)]
            if fresh:
                yield b"".join(m.wire for m in fresh)
            if self._watch.ends and any(m.is_last for m in fresh):
                return
            if time.monotonic() >= next_ping:
                if not self._still_allowed():
                    return
                yield PING
                next_ping = time.monotonic() + self._ping_every
        yield retry_soon()

    def _is_fresh(self, message: Message) -> bool:
        floor = self._floor.get(message.job_id, -1)
        # A parent is told again at the same version when its children moved.
        return message.version > floor or (message.kind == "job" and message.version == floor)
