"""What a media file holds, as one frozen value: ffprobe's answer and the file's own structure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sluice_core.domain.errors import SluiceError
from sluice_transcoder.containers import Container, container_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sluice_core.adapters.layout import Layout

#: ffmpeg opens local files only, and only by demuxers that read one file: a "video" that is a
#: playlist, a concat script or an SDP could name any other file of the machine.
PROTOCOLS = "file,pipe,crypto,data"
DEMUXERS = (
    "mov,matroska,webm,mpegts,mpeg,flv,avi,asf,ogg,mp3,aac,flac,wav,w64,aiff,caf,ac3,eac3,dts,"
    "amr,ape,wv,tta,m4v,h264,hevc,mpegvideo,ivf,gif,mxf,rm,nut,dv,au"
)

#: What is asked of ffprobe; tags are the site's text and may be of any length.
_ENTRIES = (
    "format=format_name,duration,start_time:format_tags=major_brand"
    ":stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,pix_fmt"
    ",field_order,color_transfer,avg_frame_rate,start_time,duration"
    ",channels:stream_tags=rotate,DURATION:stream_disposition=attached_pic,default"
    ":stream_side_data=rotation"
)

#: Demuxers of bare streams, whose duration is guessed from size and first bit rate.
_GUESSING = frozenset(
    {"aac", "mp3", "ac3", "eac3", "dts", "amr", "h264", "hevc", "mpegvideo", "m4v", "mpeg"}
    # First to last time stamp, which joined HLS segments may start anew.
    | {"mpegts"}
)

_HDR_TRANSFERS = frozenset({"smpte2084", "arib-std-b67"})


class StreamKind(StrEnum):
    VIDEO = "video"
    AUDIO = "audio"
    SUBTITLE = "subtitle"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream. Times in seconds, sizes in pixels as stored."""

    index: int
    kind: StreamKind
    codec: str
    default: bool = False
    #: Cover art: a picture that goes with sound, no video.
    attached_pic: bool = False
    start_time: float | None = None
    duration: float | None = None
    width: int = 0
    height: int = 0
    #: Degrees, 0 to 359, that a player turns the picture by.
    rotation: int = 0
    square_pixels: bool = True
    pix_fmt: str = ""
    transfer: str = ""
    interlaced: bool = False
    avg_fps: Fraction | None = None
    channels: int = 0

    @property
    def hdr(self) -> bool:
        return self.transfer in _HDR_TRANSFERS

    @property
    def shown_size(self) -> tuple[int, int]:
        """Width and height after rotation."""
        turned = self.rotation % 180 != 0
        return (self.height, self.width) if turned else (self.width, self.height)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One file. Times in seconds, size in bytes."""

    size: int
    demuxer: str
    container: Container
    layout: Layout
    streams: tuple[Stream, ...]
    duration: float | None = None
    start_time: float | None = None
    #: Seconds of the longest gap that is named, see `gaps`.
    longest_gap: float = 0.0
    #: Its last bytes are missing, and that is named.
    ends_early: bool = False

    @property
    def videos(self) -> tuple[Stream, ...]:
        """Moving pictures; cover art is none."""
        return tuple(s for s in self.streams if s.kind is StreamKind.VIDEO and not s.attached_pic)

    @property
    def audios(self) -> tuple[Stream, ...]:
        return tuple(s for s in self.streams if s.kind is StreamKind.AUDIO)

    @property
    def duration_is_guess(self) -> bool:
        return self.demuxer.split(",")[0] in _GUESSING


def probe_command(ffprobe: Path, path: Path) -> list[str]:
    """The command line whose output `parse_probe` reads."""
    return [
        str(ffprobe),
        *("-v", "error", "-hide_banner"),
        *input_guard(),
        *("-show_entries", _ENTRIES, "-of", "json=compact=1"),
        *("-i", file_url(path)),
    ]


def tail_command(ffprobe: Path, path: Path, *, start: float) -> list[str]:
    """The command line that lists the times of the packets from `start` seconds on."""
    return [
        str(ffprobe),
        *("-v", "error", "-hide_banner"),
        *input_guard(),
        *("-read_intervals", f"{start:.3f}%", "-show_entries", "packet=pts_time"),
        *("-of", "csv=p=0", "-i", file_url(path)),
    ]


def input_guard() -> tuple[str, ...]:
    """Options in front of every input: local files only, plain media only."""
    return ("-protocol_whitelist", PROTOCOLS, "-format_whitelist", DEMUXERS)


def file_url(path: Path) -> str:
    """A name that can be neither an option nor another protocol."""
    return f"file:{path.absolute()}"


def parse_probe(text: str, *, size: int, layout: Layout) -> Probe:
    """Read ffprobe's JSON.

    Raises:
        SluiceError: `bad_media`, it is not what ffprobe writes.

    """
    try:
        data = json.loads(text)
        streams = tuple(_stream(item) for item in data.get("streams", []))
        form = data["format"]
        demuxer = str(form["format_name"])
    except (ValueError, KeyError, TypeError) as exc:
        raise SluiceError(code="bad_media") from exc
    pictures = any(s.kind is StreamKind.VIDEO and not s.attached_pic for s in streams)
    audio = next((s.codec for s in streams if s.kind is StreamKind.AUDIO), None)
    brand = str(form.get("tags", {}).get("major_brand", ""))
    return Probe(
        size=size,
        demuxer=demuxer,
        container=container_of(
            demuxer, doctype=layout.doctype, brand=brand, pictures=pictures, audio=audio
        ),
        layout=layout,
        streams=streams,
        duration=_seconds(form.get("duration")),
        start_time=_seconds(form.get("start_time")),
    )


def _stream(item: Mapping[str, Any]) -> Stream:
    disposition = item.get("disposition", {})
    kind = item.get("codec_type", "")
    return Stream(
        index=int(item["index"]),
        kind=StreamKind(kind) if kind in set(StreamKind) else StreamKind.OTHER,
        codec=str(item.get("codec_name", "unknown")),
        default=bool(disposition.get("default")),
        attached_pic=bool(disposition.get("attached_pic")),
        start_time=_seconds(item.get("start_time")),
        duration=_seconds(item.get("duration")) or _clock(item.get("tags", {}).get("DURATION")),
        width=_whole(item.get("width")) or 0,
        height=_whole(item.get("height")) or 0,
        rotation=_rotation(item),
        square_pixels=item.get("sample_aspect_ratio", "1:1") in ("1:1", "0:1", "N/A"),
        pix_fmt=str(item.get("pix_fmt", "")),
        transfer=str(item.get("color_transfer", "")),
        interlaced=item.get("field_order", "progressive") in ("tt", "bb", "tb", "bt"),
        avg_fps=_rate(item.get("avg_frame_rate")),
        channels=_whole(item.get("channels")) or 0,
    )


def _rotation(item: Mapping[str, Any]) -> int:
    """The display matrix turns counter-clockwise, the older tag clockwise: both become one."""
    for side in item.get("side_data_list", []):
        if "rotation" in side:
            return round(-float(side["rotation"])) % 360
    return (_whole(item.get("tags", {}).get("rotate")) or 0) % 360


def _seconds(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    # "nan" and "inf" are floats too.
    return seconds if abs(seconds) < 1e12 else None  # noqa: PLR2004  # 30,000 years


def _clock(value: object) -> float | None:
    """Matroska's own `00:01:02.5`."""
    parts = str(value).split(":")
    if len(parts) != 3:  # noqa: PLR2004  # hours, minutes, seconds
        return None
    numbers = [_seconds(part) for part in parts]
    hours, minutes, seconds = (number or 0.0 for number in numbers)
    return hours * 3600 + minutes * 60 + seconds or None


def _whole(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _rate(value: object) -> Fraction | None:
    try:
        rate = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None
    return rate or None
