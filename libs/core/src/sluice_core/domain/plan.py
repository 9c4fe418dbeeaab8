"""What the parser chose and the downloader fetched: small values, kept in the job's row.

Plans hold choices, not promises: links in the stored description may be bound to an address,
a cookie or a time, so the downloader may extract again and pick the same format ids.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sluice_core.domain.gaps import Gap


@dataclass(frozen=True, slots=True)
class Track:
    """One chosen format that is fetched by itself."""

    #: yt-dlp's format id.
    format_id: str
    #: `muxed`, `video` or `audio`.
    kind: str
    ext: str
    #: Bytes as far as the site says; None when unknown.
    bytes: int | None = None


#: Kind of a file of subtitles, which goes beside the media as it is.
SUBTITLE = "subtitle"


@dataclass(frozen=True, slots=True)
class Source:
    """A fetched track in storage, ready for the transcoder."""

    #: Of subtitles their language.
    format_id: str
    #: As of its track, or `subtitle`.
    kind: str
    key: str
    bytes: int
    ext: str
    #: Code of why it could not be fetched, of what the media is kept without.
    missing: str = ""
    #: What is missing of it, where only parts are.
    gap: Gap | None = None
    #: Storage key of where in the file they belong.
    gaps_key: str = ""

    @property
    def whole(self) -> bool:
        return not self.missing and self.gap is None

    @property
    def keys(self) -> tuple[str, ...]:
        """All that is in storage of it."""
        return tuple(key for key in (self.key, self.gaps_key) if key)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Source:
        gap = data.get("gap")
        return cls(**{**data, "gap": Gap.from_json(gap) if gap else None})


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of the parse stage for one single media."""

    #: Storage key of yt-dlp's description (JSON); too large for a row.
    info_key: str
    tracks: tuple[Track, ...]
    #: What an earlier download fetched, when the job ended with gaps that a retry may fill.
    fetched: tuple[Source, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        return cls(
            data["info_key"],
            tuple(Track(**track) for track in data["tracks"]),
            tuple(Source.from_json(source) for source in data.get("fetched", ())),
        )
