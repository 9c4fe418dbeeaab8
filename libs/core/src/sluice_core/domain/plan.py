"""What the parser chose and the downloader fetched: small values, kept in the job's row.

Plans hold choices, not promises: links in the stored description may be bound to an address,
a cookie or a time, so the downloader may extract again and pick the same format ids.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of the parse stage for one single media."""

    #: Storage key of yt-dlp's description (JSON); too large for a row.
    info_key: str
    tracks: tuple[Track, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        return cls(data["info_key"], tuple(Track(**t) for t in data["tracks"]))


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Source:
        return cls(**data)
