"""Thousands of clients of event streams in one process, each on a socket of its own."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

#: Bytes read from a ready socket at once.
CHUNK = 65_536
#: Requests that may wait for their first answer at the same time, while connecting.
CONNECTING = 64

#: `progress.bytes` of an event carries the number of the write that it tells of.
_NUMBER = re.compile(rb'"bytes": ?(\d+)')


@dataclass(slots=True)
class Listener:
    """One client, and what came last."""

    sock: socket.socket
    path: str
    #: The end of an event that was cut by a read.
    rest: bytes = b""
    #: Numbers of the events that came.
    seen: set[int] = field(default_factory=set)
    #: Whether the answer's first event has come.
    begun: bool = False
    ended: bool = False
    #: The last bytes of the last whole event.
    last: bytes = b""


@dataclass
class Crowd:
    """Connects listeners and notes when which numbered event reached how many of them.

    Args:
        address: of the server.

    """

    address: tuple[str, int]
    listeners: dict[int, Listener] = field(default_factory=dict)
    #: Called with the number of an event, a listener and the time, for each event that arrives.
    on_number: Callable[[int, Listener, float], None] = lambda _number, _listener, _at: None

    def __post_init__(self) -> None:
        self._epoll = select.epoll()

    def connect(self, paths: Iterable[str], *, timeout: float, **headers: str) -> None:
        """Open one stream per path, a few at a time; returns when each has had an event."""
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        deadline = time.monotonic() + timeout
        waiting: set[int] = set()
        left = iter(paths)
        path = next(left, None)
        while path is not None or waiting:
            if time.monotonic() > deadline:
                said = [self.listeners[fd].rest[-200:] for fd in list(waiting)[:3]]
                raise TimeoutError(f"{len(waiting)} streams did not begin: {said}")
            while path is not None and len(waiting) < CONNECTING:
                waiting.add(self._open(path, more))
                path = next(left, None)
            self.turn(0.05)
            waiting = {fd for fd in waiting if not self.listeners[fd].begun}

    def _open(self, path: str, headers: str) -> int:
        sock = socket.create_connection(self.address, timeout=30)
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"
        sock.sendall(request.encode())
        sock.setblocking(False)  # noqa: FBT003  # the method's own form
        self.listeners[sock.fileno()] = Listener(sock, path)
        self._epoll.register(sock, select.EPOLLIN)
        return sock.fileno()

    def turn(self, wait: float) -> None:
        """Read what has arrived, waiting up to `wait` seconds for the first of it."""
        for fd, _ in self._epoll.poll(wait):
            self._read(fd)

    def run(self, until: Callable[[], bool], *, timeout: float) -> None:
        """Read until it is true."""
        deadline = time.monotonic() + timeout
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError("not all events came")
            self.turn(0.02)

    def _read(self, fd: int) -> None:
        one = self.listeners[fd]
        try:
            data = one.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            one.ended = True
            self._epoll.unregister(fd)
            return
        at = time.monotonic()
        whole, mark, rest = (one.rest + data).rpartition(b"\n\n")
        one.rest = rest
        if not mark:
            return
        one.last = whole[-200:]
        one.begun = one.begun or b"\nevent: " in whole
        for found in _NUMBER.finditer(whole):
            number = int(found[1])
            if number not in one.seen:
                one.seen.add(number)
                self.on_number(number, one, at)

    @property
    def open(self) -> int:
        return sum(not one.ended for one in self.listeners.values())

    def close(self, count: int | None = None) -> None:
        """Close some of them, or all."""
        for fd in list(self.listeners)[:count]:
            one = self.listeners.pop(fd)
            one.sock.close()
