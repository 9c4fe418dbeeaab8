"""Writing to one client: paced where asked, and aware at once of a client that leaves."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING

from .bodies import FileSpan

if TYPE_CHECKING:
    from .bodies import Span
    from .stats import Record

#: Seconds without a byte taken, and of deliberate silence, after which the site gives up itself.
MAX_SILENCE = 900.0
#: A throttled connection sends in steps of this length, in seconds.
_STEP = 0.05
#: Send buffer of a throttled connection: what is booked as sent is then nearly what arrived.
_SMALL_BUFFER = 32 * 1024
_DRAIN_TIMEOUT = 5.0
_DRAIN_POLL = 0.002
#: Linux tells of a client that closed; elsewhere only a full hang-up shows.
_GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR | select.POLLNVAL


class ClientGoneError(ConnectionError):
    """The client left, or the site is closing."""


class Wire:
    """One client's socket. The socket has a timeout, so its descriptor does not block.

    Args:
        rate: bytes per second for body data, None for all that goes.
        record: where body bytes that were handed to the kernel are booked.
    """

    def __init__(self, sock: socket.socket, *, rate: float | None, record: Record) -> None:
        self._sock = sock
        self._rate = rate
        self._record = record
        self._started = time.monotonic()
        self._paced = 0
        self._files: dict[str, int] = {}
        if rate is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL_BUFFER)

    def close(self) -> None:
        """Close the files that were opened for spans; the socket is not ours."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def head(self, data: bytes, *, over: float = 0.0) -> None:
        """Send a status line and headers, trickling `over` seconds."""
        if over > 0:
            for index in range(len(data)):
                self._push(memoryview(data)[index : index + 1])
                self.pause(over / len(data))
        else:
            self._push(memoryview(data))
        self._started = time.monotonic()

    def framing(self, data: bytes) -> None:
        """Send bytes that belong to the transfer coding, not to the body."""
        self._push(memoryview(data))

    def span(self, span: Span) -> None:
        """Send a part of the body."""
        length = len(span) if isinstance(span, bytes) else span.length
        position = 0
        while position < length:
            allowed = self._allowance(length - position)
            self._poll(select.POLLOUT, MAX_SILENCE)
            # Handed over and booked in one: who has the bytes finds them in the book.
            with self._record.booking:
                if isinstance(span, FileSpan):
                    sent = self._sendfile(span, position, allowed)
                else:
                    sent = self._sock.send(memoryview(span)[position : position + allowed])
                self._record.sent += sent
            position += sent
            self._paced += sent

    def pause(self, seconds: float) -> None:
        """Wait, unless the client leaves."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._poll(0, left)

    def silence(self) -> None:
        """Say nothing until the client leaves."""
        self.pause(MAX_SILENCE)

    def reset(self) -> None:
        """Let what was sent arrive, then arrange that closing the socket sends RST."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT
        while self._unacknowledged() and time.monotonic() < deadline:
            self.pause(_DRAIN_POLL)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _allowance(self, wanted: int) -> int:
        """How much may go now; waits for the next step of a throttled connection."""
        if self._rate is None:
            return wanted
        due = self._started + self._paced / self._rate
        self.pause(due - time.monotonic())
        return min(wanted, max(1, int(self._rate * _STEP)))

    def _sendfile(self, span: FileSpan, position: int, count: int) -> int:
        name = str(span.path)
        if name not in self._files:
            self._files[name] = os.open(name, os.O_RDONLY)
        try:
            sent = os.sendfile(
                self._sock.fileno(), self._files[name], span.offset + position, count
            )
        except BlockingIOError:
            return 0
        if sent == 0:
            raise EOFError(f"{span.path.name} ends before its span does")
        return sent

    def _send(self, data: memoryview) -> int:
        self._poll(select.POLLOUT, MAX_SILENCE)
        return self._sock.send(data)

    def _push(self, data: memoryview) -> None:
        while data:
            data = data[self._send(data) :]

    def _poll(self, events: int, seconds: float) -> None:
        poller = select.poll()
        descriptor = self._sock.fileno()
        if descriptor < 0:
            raise ClientGoneError
        poller.register(descriptor, events | _GONE)
        ready = poller.poll(max(1, int(seconds * 1000)))
        if any(flags & _GONE for _, flags in ready):
            raise ClientGoneError
        if events and not ready:
            raise ClientGoneError("the client takes nothing any more")

    def _unacknowledged(self) -> int:
        raw = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        return int(struct.unpack("i", raw)[0])
