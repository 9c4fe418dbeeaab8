"""ffmpeg's `-progress` lines as percent, time and speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

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


#: What joining takes of the whole, in percent: pictures are copied, sound is encoded.
_JOIN_PERCENT = 3.0


class WholeProgress:
    """Progress of an encode that is made of segments.

    Args:
        duration: seconds of media.
        frames: pictures of all segments.
        on_progress: is told.
        others: pictures of segments that are not done here and that others encoded so far.

    """

    def __init__(
        self,
        *,
        duration: float,
        frames: int,
        on_progress: Callable[[EncodeProgress], None],
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._duration = duration
        self._frames = frames
        self._on_progress = on_progress
        self._others = others
        self._done = 0
        self._bytes = 0
        self._kept = 0
        self._furthest = 0
        self._began: tuple[float, int] | None = None

    @property
    def share(self) -> float:
        """How much of the whole was not kept from an earlier run, 0 to 1."""
        return 1.0 - self._kept / self._frames

    def kept(self, frames: int, size: int) -> None:
        """A segment is there already."""
        self._kept += frames
        self.ended(frames, size)
        self.tell(0, 0)

    def begin(self) -> None:
        """What is not kept begins to be encoded."""
        self._began = (time.monotonic(), self._done + self._others())

    def ended(self, frames: int, size: int) -> None:
        """A segment is done, now or by an earlier run."""
        self._done += frames
        self._bytes += size

    def tell(self, frames: int, size: int) -> None:
        """So much of the present segment is encoded."""
        # What somebody else was at is begun again when he is lost.
        done = min(self._frames, max(self._furthest, self._done + frames + self._others()))
        self._furthest = done
        share = done / self._frames
        speed = self._speed(done)
        left = self._duration * (1 - share)
        self._on_progress(
            EncodeProgress(
                percent=round((100 - _JOIN_PERCENT) * share, 1),
                seconds=self._duration * share,
                bytes=self._bytes + size,
                speed=speed,
                eta_seconds=round(left / speed, 1) if speed else None,
            )
        )

    def _speed(self, done: int) -> float | None:
        if self._began is None or done <= self._began[1]:
            return None
        at, before = self._began
        seconds = self._duration * (done - before) / self._frames
        return seconds / max(time.monotonic() - at, 0.001)

    def joining(self, progress: EncodeProgress | None) -> None:
        """The joining run's own progress; None is not told on."""
        if progress is None:
            return
        own = (progress.percent or 0.0) * _JOIN_PERCENT / 100
        percent = min(_ALMOST, round(100 - _JOIN_PERCENT + own, 1))
        # Both copies are on the disk by now.
        size = self._bytes + progress.bytes
        self._on_progress(replace(progress, percent=percent, seconds=self._duration, bytes=size))


class SegmentProgress:
    """Reads what the run of one segment says; times in it are those of the whole, so it counts.

    Args:
        frames: pictures that it will have.
        on_first: called once there are some.
        on_progress: told pictures and bytes so far.

    """

    def __init__(
        self,
        frames: int,
        *,
        on_first: Callable[[], None],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._wanted = frames
        self._on_first = on_first
        self._on_progress = on_progress
        #: Bytes so far.
        self.size = 0
        #: Pictures so far.
        self.frames = 0

    def feed(self, line: str) -> None:
        """One line of `-progress`."""
        key, _, value = line.strip().partition("=")
        if key == "frame":
            self._count(int(_number(value) or 0))
        elif key == "total_size":
            self.size = max(self.size, int(_number(value) or 0))
        elif key == "progress":
            self._on_progress(self.frames, self.size)

    def _count(self, frames: int) -> None:
        before, self.frames = self.frames, min(self._wanted, max(self.frames, frames))
        if self.frames and not before:
            self._on_first()
