"""The text of playlists: media playlists as ffmpeg wrote them, the master playlist as we do. Pure.

Terms and rules: RFC 8216 and its successor draft-pantos-hls-rfc8216bis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import m3u8

from sluice_core.domain.errors import SluiceError

#: Of sound alone, as we encode it: AAC-LC in MP4 (RFC 6381).
AAC_LC = "mp4a.40.2"

_GROUP = "audio"

#: A peak is measured over segments that last so much of the target duration together
#: (RFC 8216, 4.1): a short last one alone says nothing.
_SHORTEST, _LONGEST = 0.5, 1.5


@dataclass(frozen=True, slots=True)
class Segment:
    """Seconds, and where its bytes are in the rendition's file."""

    seconds: float
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Media:
    """One media playlist of one file. `header` is the size of the part that starts each segment."""

    uri: str
    header: int
    segments: tuple[Segment, ...]

    @property
    def seconds(self) -> float:
        return sum(segment.seconds for segment in self.segments)

    @property
    def average(self) -> float:
        """Bits per second of all segments."""
        return _rate(self.segments)

    @property
    def peak(self) -> float:
        """The most bits per second that a player meets."""
        return max((_rate(run) for run in _runs(self.segments)), default=self.average)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One line of the master playlist. `size` and `frame_rate` None: there are no pictures."""

    uri: str
    media: Media
    codec: str
    size: tuple[int, int] | None = None
    frame_rate: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundGroup:
    """Sound that goes with every variant."""

    uri: str
    media: Media
    channels: int


def read_media(text: str) -> Media:
    """Read a media playlist of one file, cut by byte ranges.

    Raises:
        ValueError: it is no such playlist, or has no end.

    """
    parsed = _parsed(text)
    if parsed.is_variant or not parsed.segments or not parsed.is_endlist:
        raise ValueError("it has no segments or no end")
    headers = {(header.uri, header.byterange) for header in parsed.segment_map}
    uris = {s.uri for s in parsed.segments} | {uri for uri, _ in headers}
    if len(headers) != 1 or len(uris) != 1:
        raise ValueError("it is not of one file")
    [(_, header)] = headers
    size, offset = _range(header)
    if offset:
        raise ValueError("its header is not in front")
    segments = tuple(_segment(s.duration, s.byterange) for s in parsed.segments)
    return Media(uri=uris.pop(), header=size, segments=segments)


@dataclass(frozen=True, slots=True)
class Master:
    """What a master playlist names: media playlists by what they are, with the size told."""

    variants: tuple[tuple[str, tuple[int, int] | None], ...]
    sounds: tuple[str, ...]


def read_master(text: str) -> Master:
    """Read a master playlist.

    Raises:
        ValueError: it is none.

    """
    parsed = _parsed(text)
    if not parsed.is_variant:
        raise ValueError("it names no renditions")
    variants = tuple((p.uri, p.stream_info.resolution) for p in parsed.playlists)
    return Master(variants, tuple(media.uri for media in parsed.media))


def master_text(variants: Sequence[Variant], sound: SoundGroup | None) -> str:
    """The master playlist; the smallest variant first, with which players begin."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    if sound is not None:
        lines.append(
            f'#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="{_GROUP}",NAME="Sound",DEFAULT=YES,AUTOSELECT=YES,'
            f'CHANNELS="{sound.channels}",URI="{sound.uri}"'
        )
    for variant in sorted(variants, key=lambda v: v.media.peak):
        lines += [f"#EXT-X-STREAM-INF:{_attributes(variant, sound)}", variant.uri]
    return "\n".join(lines) + "\n"


def avc_codec(header: bytes) -> str:
    """The codec string of H.264 (RFC 6381), from the `avcC` box of a file's header.

    Raises:
        SluiceError: `transcode_failed`, there is none.

    """
    at = header.find(b"avcC")
    # Version, profile, compatibility, level (ISO 14496-15, 5.3.3.1).
    told = header[at + 5 : at + 8]
    if at < 0 or len(told) != 3:  # noqa: PLR2004  # three bytes
        raise SluiceError("it does not tell how its pictures are coded", code="transcode_failed")
    return f"avc1.{told.hex()}"


def _attributes(variant: Variant, sound: SoundGroup | None) -> str:
    peak, average = variant.media.peak, variant.media.average
    codecs = variant.codec
    if sound is not None:
        peak, average = peak + sound.media.peak, average + sound.media.average
        codecs = f"{codecs},{AAC_LC}"
    words = [
        f"BANDWIDTH={math.ceil(peak)}",
        f"AVERAGE-BANDWIDTH={math.ceil(average)}",
        f'CODECS="{codecs}"',
    ]
    if variant.size is not None:
        words.append(f"RESOLUTION={variant.size[0]}x{variant.size[1]}")
    if variant.frame_rate is not None:
        words.append(f"FRAME-RATE={float(variant.frame_rate):.3f}")
    if sound is not None:
        words.append(f'AUDIO="{_GROUP}"')
    return ",".join(words)


def _rate(segments: Sequence[Segment]) -> float:
    seconds = sum(segment.seconds for segment in segments)
    return 8 * sum(segment.size for segment in segments) / seconds if seconds else 0.0


def _runs(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Neighbours that a peak is measured over."""
    target = math.ceil(max((segment.seconds for segment in segments), default=0.0))
    for start in range(len(segments)):
        seconds = 0.0
        for end in range(start, len(segments)):
            seconds += segments[end].seconds
            if seconds > _LONGEST * target:
                break
            if seconds >= _SHORTEST * target:
                yield segments[start : end + 1]


def _parsed(text: str) -> Any:
    if not text.startswith("#EXTM3U"):
        raise ValueError("it is no playlist")
    return m3u8.loads(text)


def _segment(seconds: float, byte_range: str | None) -> Segment:
    size, offset = _range(byte_range)
    return Segment(seconds, offset, size)


def _range(text: str | None) -> tuple[int, int]:
    size, _, offset = (text or "").partition("@")
    return int(size), int(offset)
