"""What the downloader says is missing of a source: a source is then whole as far as it goes.

A named gap is taken off what a source promises, and nothing else: the result is held against the
rest as always, so that a loss that nobody named is still a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sluice_core.domain.errors import ErrorClass, SluiceError
from sluice_core.domain.gaps import Gap, Span
from sluice_transcoder.children import Workplace, last_time, probe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sluice_transcoder.probe import Probe, Stream
    from sluice_transcoder.tools import Tools

#: A gap that begins so near to the end reaches it: manifests round, sound outlasts pictures.
_NEAR_END = 0.5


@dataclass(frozen=True, slots=True)
class Lacking:
    """A source, and what is missing of it.

    Attributes:
        gap: with times as far as they can be told; None for a whole source.
        end: seconds from its start to where it ends now; None for where it promises to.

    """

    gap: Gap | None = None
    end: float | None = None

    @property
    def ends_early(self) -> bool:
        """Whether it is one file without its end, which its structure may tell, too."""
        return self.gap is not None and self.gap.unit == "bytes"

    def seen(self, found: Probe) -> Probe:
        """What the source promises, without what is known to be missing."""
        if self.gap is None:
            return found
        return replace(
            found,
            duration=_at_most(found.duration, self.end),
            streams=tuple(self._shorter(stream) for stream in found.streams),
            layout=replace(found.layout, complete=found.layout.complete or self.ends_early),
            longest_gap=max((_length(span) for span in self.gap.spans), default=0.0),
            ends_early=self.ends_early,
        )

    def _shorter(self, stream: Stream) -> Stream:
        return replace(stream, duration=_at_most(stream.duration, self.end))


def look(path: Path, gap: Gap | None, *, tools: Tools, place: Workplace) -> Lacking:
    """Find out where a source with a gap ends.

    Raises:
        SluiceError: `incomplete`, less than half of it plays; else as `children.probe`.

    """
    if gap is None:
        return Lacking()
    found = probe(path, ffprobe=tools.ffprobe, place=place)
    if gap.unit == "bytes":
        return _cut(path, gap, found, tools, place)
    last = gap.spans[-1]
    if found.duration is None or found.duration_is_guess or last.start is None or last.end is None:
        return Lacking(gap)
    return Lacking(gap, last.start if last.end > found.duration - _NEAR_END else None)


def _cut(path: Path, gap: Gap, found: Probe, tools: Tools, place: Workplace) -> Lacking:
    """A file whose last bytes are missing: only reading it tells how far it plays."""
    total = None if found.duration_is_guess else found.duration
    end = last_time(path, found, ffprobe=tools.ffprobe, place=place, whole=True)
    if total is not None and 2 * end < total:
        raise SluiceError(
            f"only {end:.1f} s of {total:.1f} s could be read",
            code="incomplete",
            error_class=ErrorClass.PERMANENT,
        )
    [span] = gap.spans
    known = Span(span.first, span.last, round(end, 3), total)
    seconds = None if total is None else round(max(0.0, total - end), 3)
    return Lacking(replace(gap, spans=(known,), seconds=seconds), end)


def named(lacking: Sequence[Lacking]) -> list[Gap]:
    """All gaps, for people."""
    return [source.gap for source in lacking if source.gap is not None]


def _at_most(length: float | None, end: float | None) -> float | None:
    return length if length is None or end is None else min(length, end)


def _length(span: Span) -> float:
    return 0.0 if span.start is None or span.end is None else span.end - span.start
