"""Containers: which codecs each one holds so that players take it, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_WEBM_AUDIO = frozenset({"opus", "vorbis"})
_MP4_AUDIO = frozenset({"aac", "mp3", "ac3", "eac3", "alac", "opus", "flac"})


@dataclass(frozen=True, slots=True)
class Container:
    """One container, as a result.

    `video` and `audio` hold codecs by ffmpeg's names; None holds every codec, an empty `video`
    is a container for sound alone.
    """

    name: str
    muxer: str
    content_type: str
    video: frozenset[str] | None
    audio: frozenset[str] | None

    @property
    def extension(self) -> str:
        return self.name

    @property
    def sound_only(self) -> bool:
        return self.video is not None and not self.video

    @property
    def indexed(self) -> bool:
        """Whether it has one index that may stand in front or behind."""
        return self.name in ("mp4", "m4a", "mov")

    def holds(self, *, video: str | None = None, audio: str | None = None) -> bool:
        """Whether it takes these codecs."""
        takes_video = video is None or self.video is None or video in self.video
        takes_audio = audio is None or self.audio is None or audio in self.audio
        return takes_video and takes_audio


def _sound(name: str, muxer: str, content_type: str, *audio: str) -> Container:
    return Container(name, muxer, content_type, frozenset(), frozenset(audio) or None)


#: Everything that a result can be. The later ones are made by no preset, only kept as served.
CONTAINERS: Mapping[str, Container] = MappingProxyType(
    {
        container.name: container
        for container in (
            Container(
                "mp4", "mp4", "video/mp4", frozenset({"h264", "hevc", "av1", "vp9"}), _MP4_AUDIO
            ),
            Container("webm", "webm", "video/webm", frozenset({"vp8", "vp9", "av1"}), _WEBM_AUDIO),
            Container("mkv", "matroska", "video/x-matroska", None, None),
            _sound("m4a", "ipod", "audio/mp4", "aac", "alac"),
            _sound("opus", "opus", "audio/ogg", "opus"),
            _sound("mp3", "mp3", "audio/mpeg", "mp3"),
            _sound("ogg", "ogg", "audio/ogg", "vorbis", "opus", "flac"),
            _sound("flac", "flac", "audio/flac", "flac"),
            _sound("mka", "matroska", "audio/x-matroska"),
            Container("mov", "mov", "video/quicktime", None, None),
            Container("ts", "mpegts", "video/mp2t", None, None),
            Container("mpg", "mpeg", "video/mpeg", None, None),
            Container("flv", "flv", "video/x-flv", None, None),
            Container("avi", "avi", "video/x-msvideo", None, None),
            Container("wmv", "asf", "video/x-ms-wmv", None, None),
            Container("ogv", "ogv", "video/ogg", None, None),
            Container("gif", "gif", "image/gif", frozenset({"gif"}), None),
            _sound("wma", "asf", "audio/x-ms-wma"),
            _sound("wav", "wav", "audio/wav"),
            _sound("aac", "adts", "audio/aac"),
            _sound("aiff", "aiff", "audio/aiff"),
            _sound("ac3", "ac3", "audio/ac3"),
        )
    }
)

#: Served in a container that has no name of its own here.
UNKNOWN = Container("bin", "", "application/octet-stream", None, None)

#: ffmpeg's demuxer names that say all; the others need a look at the streams.
_BY_DEMUXER = MappingProxyType(
    {
        "mpegts": "ts",
        "mpeg": "mpg",
        "flv": "flv",
        "avi": "avi",
        "mp3": "mp3",
        "flac": "flac",
        "wav": "wav",
        "aac": "aac",
        "aiff": "aiff",
        "ac3": "ac3",
        "gif": "gif",
    }
)


def container_of(
    demuxer: str, *, doctype: str, brand: str, pictures: bool, audio: str | None
) -> Container:
    """Which container a file is in.

    Args:
        demuxer: ffmpeg's format name, several of them split by commas.
        doctype: what an EBML file calls itself, `webm` or `matroska`.
        brand: the major brand of an ISO file.
        pictures: whether it has a video stream that is no cover art.
        audio: codec of its first audio stream.

    """
    return CONTAINERS.get(_name_of(demuxer, doctype, brand, audio, pictures=pictures), UNKNOWN)


def _name_of(demuxer: str, doctype: str, brand: str, audio: str | None, *, pictures: bool) -> str:
    family = demuxer.split(",", maxsplit=1)[0]
    if family == "mov":
        return ("mov" if brand.strip() == "qt" else "mp4") if pictures else "m4a"
    if family == "matroska":
        if doctype == "webm":
            return "webm"
        return "mkv" if pictures else "mka"
    if family == "ogg":
        return "ogv" if pictures else ("opus" if audio == "opus" else "ogg")
    if family == "asf":
        return "wmv" if pictures else "wma"
    return _BY_DEMUXER.get(family, "")
