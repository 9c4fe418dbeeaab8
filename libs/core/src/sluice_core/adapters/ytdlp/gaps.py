"""What a fetched file is without, as it is noted beside the file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sluice_core.domain.gaps import MAX_SPANS, Gap, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAGMENTS, BYTES = "fragments", "bytes"


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each fragment plays, as far as the manifest says."""

    #: Seconds of each, in yt-dlp's order: what prepares the decoder is one of 0 s in front.
    seconds: tuple[float | None, ...] = ()
    #: Fragments in front that hold no media: 0 or 1.
    head: int = 0
    #: Whether yt-dlp counts them when it says how many fragments there are.
    in_count: bool = False

    def span(self, first: int, last: int) -> tuple[float, float] | None:
        """When the fragments from `first` to `last`, counted from 1, begin and end."""
        lengths = [length for length in self.seconds[:last] if length is not None]
        if len(lengths) < last:
            return None
        start = math.fsum(lengths[: first - 1])
        return start, start + math.fsum(lengths[first - 1 :])


def timeline_of_hls(manifest: str) -> Timeline:
    """Read `EXTINF` of a media playlist (RFC 8216)."""
    seconds: list[float | None] = []
    head, length = 0, None
    for line in map(str.strip, manifest.splitlines()):
        if line.startswith("#EXT-X-MAP") and not seconds:
            head, seconds = 1, [0.0]
        elif line.startswith("#EXTINF:"):
            length = _number(line[8:].partition(",")[0])
        elif line and not line.startswith("#"):
            seconds.append(length)
            length = None
    return Timeline(tuple(seconds), head)


def timeline_of_dash(fragments: Sequence[Mapping[str, Any]]) -> Timeline:
    """Read yt-dlp's list, in which what is without a duration in front holds no media."""
    seconds = [_number(fragment.get("duration")) for fragment in fragments]
    head = int(len(seconds) > 1 and seconds[0] is None and seconds[1] is not None)
    return Timeline((*([0.0] * head), *seconds[head:]), head, in_count=True)


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


@dataclass(frozen=True, slots=True)
class Hole:
    """Neighbours that are missing: fragments as yt-dlp counts them, or the last bytes."""

    first: int
    last: int
    #: Byte of the file where they belong.
    at: int
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class GapNote:
    """Beside a file that is kept with gaps."""

    format_id: str
    #: Why, as a code of errors.
    code: str
    unit: str
    #: Fragments that hold media, or bytes, with those that are there.
    total: int
    holes: tuple[Hole, ...]
    #: As in `Timeline`.
    head: int = 0
    #: What yt-dlp says is the number of fragments: another one is another media.
    count: int | None = None
    #: Of a file in one piece, what it takes to go on: see `PartialState.dumps`.
    state: str | None = None

    @property
    def missing(self) -> int:
        return sum(hole.last - hole.first + 1 for hole in self.holes)

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str | bytes) -> GapNote:
        """Read what `dumps` wrote.

        Raises:
            ValueError: it is not that.

        """
        try:
            data = json.loads(text)
            return cls(**{**data, "holes": tuple(Hole(**hole) for hole in data["holes"])})
        except (TypeError, KeyError) as exc:
            raise ValueError("not a note of gaps") from exc

    def to_gap(self, kind: str) -> Gap:
        """In the form that people are told."""
        lengths = [h.end - h.start for h in self.holes if h.start is not None and h.end is not None]
        known = len(lengths) == len(self.holes)
        return Gap(
            kind=kind,
            stream=self.format_id,
            code=self.code,
            unit=self.unit,
            missing=self.missing,
            total=self.total,
            seconds=round(math.fsum(lengths), 3) if known else None,
            spans=tuple(self._span(hole) for hole in self.holes[:MAX_SPANS]),
        )

    def _span(self, hole: Hole) -> Span:
        times = [None if t is None else round(t, 3) for t in (hole.start, hole.end)]
        return Span(hole.first - self.head, hole.last - self.head, *times)
