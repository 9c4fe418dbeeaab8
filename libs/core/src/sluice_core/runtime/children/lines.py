"""Output of untrusted programs, in bounded memory."""

from __future__ import annotations

#: Default cap of one line, in bytes.
MAX_LINE = 64 * 1024

#: What is kept of stderr, in bytes.
TAIL = 8 * 1024


class LineSplitter:
    """Bytes in, whole lines out. A line over the cap is dropped as it arrives, and counted."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        self._rest = b""
        self._skipping = False
        self.dropped = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes, without their ends."""
        *whole, rest = data.split(b"\n")
        lines: list[str] = []
        for part in whole:
            self._end_line(part, lines)
        self._keep(rest)
        return lines

    def close(self) -> list[str]:
        """Return the last line when it had no end."""
        lines: list[str] = []
        if self._rest or self._skipping:
            self._end_line(b"", lines)
        return lines

    def _end_line(self, part: bytes, lines: list[str]) -> None:
        if self._skipping or len(self._rest) + len(part) > self._max:
            self.dropped += 1
        else:
            lines.append((self._rest + part).decode("utf-8", errors="replace"))
        self._rest, self._skipping = b"", False

    def _keep(self, rest: bytes) -> None:
        if self._skipping:
            return
        self._rest += rest
        if len(self._rest) > self._max:
            self._rest, self._skipping = b"", True


class Tail:
    """The last bytes of a stream."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-self._size :]

    def text(self) -> str:
        return self._data.decode("utf-8", errors="replace")
