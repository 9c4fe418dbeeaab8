"""Where a long encode may be cut, from what its source holds. Pure.

A segment is what is shown from one moment to another; its edges lie half way between two pictures,
so that no rounding moves a picture over one. They are key frames' edges to spare the decoder work:
which pictures come out does not depend on it, as each segment is decoded from a key frame before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sluice_transcoder.plan import Action
from sluice_transcoder.probe import file_url, input_guard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sluice_transcoder.plan import Plan
    from sluice_transcoder.probe import Probe

#: Segments of one encode; of media longer than so many, segments are longer.
MAX_SEGMENTS = 500

#: Pictures that are remembered, 8 bytes each: 23 hours at 60 a second.
MAX_PICTURES = 5_000_000

#: Seconds from one key frame to the next at most where a cut may be: a segment is decoded from the
#: key frame before its own, and nothing moves meanwhile.
MAX_GROUP = 30.0

#: Demuxers that find a moment by an index, and tell each picture's time exactly.
_INDEXED = frozenset({"mov", "matroska"})

#: Results that keep each picture's time; others give pictures of a fixed rate.
_FREE_RATE = frozenset({"mp4", "mkv", "webm"})

#: VP8 has packets that show nothing: pictures can't be counted by packets.
_UNCOUNTABLE = frozenset({"vp8"})


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of one stream.

    Attributes:
        times: when each is shown, in seconds from the file's start, sorted.
        keys: those of key frames.
        headers: a checksum of what the stream's decoder needs before the first picture.

    """

    times: array[float]
    keys: array[float]
    headers: str = ""

    @property
    def spacing(self) -> float:
        """Seconds from one picture to the next, on average."""
        count = len(self.times)
        return (self.times[-1] - self.times[0]) / (count - 1) if count > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of an encode. Seconds from the source's start; None is the source's own edge."""

    number: int
    start: float | None
    end: float | None
    #: Pictures in it.
    frames: int
    #: When the first and the last of them are shown.
    first: float
    last: float


class PacketReader:
    """Lines of `packets_command` in, pictures out."""

    def __init__(self, start_time: float) -> None:
        self._start_time = start_time
        self._times = array("d")
        self._keys = array("d")
        self._headers = ""
        self._trusted = True

    def feed(self, line: str) -> None:
        kind, *fields = line.strip().split(",")
        if kind == "stream":
            self._headers = ",".join(fields)
        elif kind == "packet" and self._trusted:
            self._trusted = len(self._times) < MAX_PICTURES and self._packet(fields)

    def _packet(self, fields: Sequence[str]) -> bool:
        try:
            time, flags = float(fields[0]) - self._start_time, fields[1]
        except (ValueError, IndexError):
            return False
        if "D" in flags:
            # In front of an edit list's first moment: decoded, and not shown.
            return True
        self._times.append(time)
        if "K" in flags:
            self._keys.append(time)
        return True

    def pictures(self) -> Pictures | None:
        """All that was read; None when a picture has no time of its own, or they are too many."""
        times = array("d", sorted(self._times))
        if not self._trusted or not times or any(a >= b for a, b in pairwise(times)):
            return None
        return Pictures(times, array("d", sorted(self._keys)), self._headers)


def packets_command(ffprobe: Path, path: Path, *, stream: int) -> list[str]:
    """The command line whose lines `PacketReader` reads; it reads the whole file."""
    return [
        str(ffprobe),
        *("-v", "error", "-hide_banner"),
        *input_guard(),
        *("-select_streams", str(stream), "-show_data_hash", "crc32"),
        *("-show_entries", "packet=pts_time,flags:stream=extradata_hash", "-of", "csv"),
        *("-i", file_url(path)),
    ]


def may_cut(plan: Plan, probes: Sequence[Probe], *, length: float) -> bool:
    """Whether an encode is long enough, and its source one that can be cut.

    Args:
        plan: what to do.
        probes: of the sources.
        length: seconds of a segment; 0 never cuts.

    """
    video = plan.video
    if plan.action is not Action.ENCODE or video is None or video.encode is None:
        return False
    if not length or plan.duration is None or plan.duration <= 2 * length:
        return False
    found = probes[video.source]
    [stream] = [stream for stream in found.streams if stream.index == video.stream]
    return (
        found.demuxer.split(",")[0] in _INDEXED
        and plan.container.name in _FREE_RATE
        and stream.codec not in _UNCOUNTABLE
    )


def plan_segments(pictures: Pictures, *, length: float) -> tuple[Segment, ...]:
    """Cut at the first key frame after each `length` seconds; one segment is no cut.

    The last segment is no shorter than half of that. Where key frames are rare, nothing is cut.
    """
    times = pictures.times
    length = max(length, (times[-1] - times[0]) / MAX_SEGMENTS)
    edges = [0]
    for before, key in pairwise(pictures.keys):
        long_enough = key >= times[edges[-1]] + length and times[-1] - key >= length / 2
        if long_enough and key - before <= MAX_GROUP:
            edges.append(bisect_left(times, key))
    return tuple(
        Segment(
            number=number,
            start=_between(times, begin) if begin else None,
            end=_between(times, end) if end < len(times) else None,
            frames=end - begin,
            first=times[begin],
            last=times[end - 1],
        )
        for number, (begin, end) in enumerate(pairwise([*edges, len(times)]))
    )


def _between(times: Sequence[float], index: int) -> float:
    return (times[index - 1] + times[index]) / 2
