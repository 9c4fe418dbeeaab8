"""What a media is kept without: as data, and in words for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: Spans that are named of one gap; `Gap.missing` counts all.
MAX_SPANS = 50
#: Spans that stand in a sentence.
_SPOKEN = 5
#: Kind of what stands beside the media.
_SUBTITLE = "subtitle"
_STREAMS = {"video": " of the pictures", "audio": " of the sound"}


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbours that are missing: fragments from 1, bytes from 0; seconds from the beginning."""

    first: int | None = None
    last: int | None = None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """What is missing of one stream; without a unit all of it is."""

    #: As of its track, or `subtitle`.
    kind: str
    #: yt-dlp's format id; of subtitles their language.
    stream: str
    #: Why, as a code of errors.
    code: str
    #: What is counted: `fragments` or `bytes`.
    unit: str | None = None
    missing: int | None = None
    #: With those that are there.
    total: int | None = None
    #: Of all that is missing; None when it can't be told.
    seconds: float | None = None
    #: In order, the first `MAX_SPANS`.
    spans: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gap:
        return cls(**{**data, "spans": tuple(Span(**span) for span in data["spans"])})


def in_words(gaps: Sequence[Gap]) -> str:
    """One sentence for all, e.g. "3 of 800 fragments are missing: 1:20-1:32"."""
    beside = [f"{gap.stream} ({gap.code})" for gap in gaps if gap.kind == _SUBTITLE]
    said = [_media_words(gap) for gap in gaps if gap.kind != _SUBTITLE]
    if beside:
        said.append(f"subtitles are missing: {', '.join(beside)}")
    return "; ".join(said)


def _media_words(gap: Gap) -> str:
    stream = _STREAMS.get(gap.kind, "")
    if gap.unit == "fragments":
        verb = "is" if gap.missing == 1 else "are"
        spans = [_span_words(span) for span in gap.spans[:_SPOKEN]]
        more = len(gap.spans) - len(spans)
        listed = ", ".join([*spans, f"and {more} more places"] if more else spans)
        return f"{gap.missing} of {gap.total} fragments{stream} {verb} missing: {listed}"
    [span] = gap.spans
    if span.start is not None:
        until = "" if span.end is None else f" of {clock(span.end)}"
        return f"the end{stream} is missing: from {clock(span.start)}{until} on"
    total = "" if gap.total is None else f" of {gap.total}"
    return f"the end{stream} is missing: from byte {span.first}{total} on"


def _span_words(span: Span) -> str:
    if span.start is not None and span.end is not None:
        return f"{clock(span.start)}-{clock(span.end)}"
    if span.first == span.last:
        return f"number {span.first}"
    return f"numbers {span.first}-{span.last}"


def clock(seconds: float) -> str:
    """Seconds as `1:02:03` or `2:03`."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
