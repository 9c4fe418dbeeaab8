"""A client's connection, written by the event loop: none of thousands needs a greenlet."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gevent

_READ, _WRITE = 1, 2


class Line:
    """An open answer whose headers were sent; belongs to us alone, and must be closed.

    Args:
        fd: of the connection, not blocking.
        is_chunked: whether the answer is sent in chunks (RFC 9112, 7.1).
        on_gone: called once, when the client has closed; must not wait.
        on_ready: called when more can be sent after `is_full`; must not wait.

    """

    __slots__ = ("_fd", "_is_chunked", "_left", "_on_gone", "_on_ready", "_reader", "_writer")

    def __init__(
        self,
        fd: int,
        *,
        is_chunked: bool,
        on_gone: Callable[[], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._is_chunked = is_chunked
        self._on_gone = on_gone
        self._on_ready = on_ready
        #: What the connection did not take yet.
        self._left = b""
        self._writer: Any = None
        self._reader: Any = gevent.get_hub().loop.io(fd, _READ)
        self._reader.start(self._look)

    @property
    def is_full(self) -> bool:
        """Whether the client has to take what was sent before there is room for more."""
        return bool(self._left)

    def send(self, data: bytes) -> None:
        """Send now, or as soon as the client takes it; only while it is not full."""
        self._left += b"%X\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
        self._write()

    def finish(self, data: bytes) -> None:
        """Send what fits, say that this was all, and close."""
        end = b"0\r\n\r\n" if self._is_chunked else b""
        if data and not self._left:
            self.send(data)
        self._left += end
        self._write()
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._stop_watching()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self) -> None:
        if self._fd < 0:
            return
        try:
            while self._left:
                self._left = self._left[os.write(self._fd, self._left) :]
        except BlockingIOError:
            self._wait()
        except OSError:
            self._leave()

    def _wait(self) -> None:
        if self._writer is None:
            self._writer = gevent.get_hub().loop.io(self._fd, _WRITE)
            self._writer.start(self._take_up)

    def _take_up(self) -> None:
        _stop(self._writer)
        self._writer = None
        self._write()
        if not self._left:
            self._on_ready()

    def _look(self) -> None:
        try:
            said_more = bool(os.read(self._fd, 1))
        except BlockingIOError:
            return
        except OSError:
            said_more = False
        if said_more:
            # A next request behind this one is not answered, and could be of any length.
            _stop(self._reader)
            self._reader = None
        else:
            self._leave()

    def _leave(self) -> None:
        self._left = b""
        self.close()
        self._on_gone()

    def _stop_watching(self) -> None:
        for watcher in (self._reader, self._writer):
            _stop(watcher)
        self._reader = self._writer = None


def _stop(watcher: Any) -> None:
    if watcher is not None:
        watcher.stop()
        watcher.close()
