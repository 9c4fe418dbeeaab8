"""Notices that a client closed its connection, without waiting for the next thing to be sent."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import gevent

_READ = 1


class Departure:
    """Watches one connection.

    Args:
        sock: of the client; None, or one without a descriptor, is not watched.
        on_gone: called once, in the event loop, when the client has closed; must not wait.

    """

    def __init__(self, sock: socket.socket | None, on_gone: Callable[[], None]) -> None:
        self._sock = sock
        self._on_gone = on_gone
        self._watcher: Any = None
        if sock is not None and sock.fileno() >= 0:
            self._watcher = gevent.get_hub().loop.io(sock.fileno(), _READ)
            self._watcher.start(self._look)

    def _look(self) -> None:
        if self._said_more():
            # A next request behind this one says nothing, and would be reported for ever.
            self.close()
            return
        self.close()
        self._on_gone()

    def _said_more(self) -> bool:
        if self._sock is None:
            return False
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Stop watching; idempotent."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
