"""ffmpeg's `-progress` lines as percent, time and speed."""

from __future__ import annotations

from dataclasses import dataclass

_MICROSECONDS = 1_000_000

#: Until ffmpeg has ended nothing is done: the index is still moved to the front, the file synced.
_ALMOST = 99.9


@dataclass(frozen=True, slots=True)
class EncodeProgress:
    """How far one ffmpeg run is.

    Attributes:
        percent: 0 to 100, None when the length of the media is not known.
        seconds: of the result, written so far.
        bytes: of the result, written so far.
        speed: seconds of media per second of work, None when not told yet.
        eta_seconds: time left, None when not known.

    """

    percent: float | None
    seconds: float
    bytes: int
    speed: float | None
    eta_seconds: float | None


class ProgressReader:
    """Lines in, a value at the end of each block. Keeps the furthest `seconds` for the check."""

    def __init__(self, duration: float | None) -> None:
        self._duration = duration
        self._block: dict[str, str] = {}
        self.seconds = 0.0

    def feed(self, line: str) -> EncodeProgress | None:
        """One line, `key=value`; `progress=…` ends a block. Anything else is left out."""
        key, _, value = line.strip().partition("=")
        if key != "progress":
            # The keys are few; a filter's chatter must not make them many.
            if key in ("out_time_us", "total_size", "speed"):
                self._block[key] = value.strip()
            return None
        progress = self._read()
        self._block = {}
        return progress

    def _read(self) -> EncodeProgress:
        # "N/A" until the first packet, negative around an edit list's start.
        reached = _number(self._block.get("out_time_us")) or 0.0
        self.seconds = max(self.seconds, reached / _MICROSECONDS)
        speed = _number(self._block.get("speed", "").rstrip("x"))
        return EncodeProgress(
            percent=self._percent(),
            seconds=self.seconds,
            bytes=int(_number(self._block.get("total_size")) or 0),
            speed=speed,
            eta_seconds=self._eta(speed),
        )

    def _percent(self) -> float | None:
        if not self._duration:
            return None
        return min(_ALMOST, round(100 * self.seconds / self._duration, 1))

    def _eta(self, speed: float | None) -> float | None:
        if not self._duration or not speed:
            return None
        return round(max(0.0, self._duration - self.seconds) / speed, 1)


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
