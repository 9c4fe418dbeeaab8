"""A door in front of a TCP server on loopback: shut, it refuses whoever knocks."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread

from sluice_testing.process import free_port

_BLOCK = 256 * 1024


class Gate:
    """Passes connections on to a server.

    Args:
        port: of the server.

    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.port = free_port()
        self._lock = Lock()
        self._door: socket.socket | None = None
        self._open: set[socket.socket] = set()

    def open(self) -> None:
        door = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._door = door
        Thread(target=self._let_in, args=(door,), daemon=True, name="gate").start()

    def shut(self) -> None:
        """Refuse new connections, and cut those that are open."""
        door, self._door = self._door, None
        if door is not None:
            # What waits in accept() hears of the end only so.
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            _end(one)

    def _let_in(self, door: socket.socket) -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=5.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                Thread(target=self._pass, args=(one, other), daemon=True).start()
            if self._door is not door:
                # Shut meanwhile.
                _end(client)
                _end(server)

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        """Pass on what comes from one to the other, until either ends."""
        with suppress(OSError):
            while block := one.recv(_BLOCK):
                other.sendall(block)
        _end(other)
        # Each side closes what it read from, so that none is closed under the other's hands.
        with self._lock:
            self._open.discard(one)
        _end(one)
        one.close()


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
