"""Presets: what people can ask for, as data. `presets.toml` holds the built-in ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from sluice_core.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

#: A preset that accepts this needs no encoding for any codec.
ANY = "*"

#: What each encoder makes, by ffmpeg's names.
VIDEO_ENCODERS = MappingProxyType(
    {"libx264": "h264", "libx265": "hevc", "libvpx-vp9": "vp9", "libsvtav1": "av1"}
)
AUDIO_ENCODERS = MappingProxyType(
    {"aac": "aac", "libmp3lame": "mp3", "libopus": "opus", "flac": "flac", "ac3": "ac3"}
)

#: Containers that a preset may ask for.
CONTAINERS = ("mp4", "webm", "mkv", "m4a", "opus", "mp3", "ogg", "flac", "mka")

#: It is part of addresses, labels and file names.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

#: The largest picture that anything here is meant for (8K is 4320).
_MAX_HEIGHT = 4320
_MAX_CRF = 63
_MAX_BITRATE = 512
#: Of pictures, in kbit/s: beyond what 8K is streamed with.
_MAX_VIDEO_BITRATE = 200_000
#: Each one is an encoder that runs beside the others.
MAX_RUNGS = 8

_Table: TypeAlias = Mapping[str, object]


class PresetKind(StrEnum):
    VIDEO = "video"
    AUDIO = "audio"
    #: The bytes of the site, changed in nothing where one file holds everything.
    AS_SERVED = "as-served"


@dataclass(frozen=True, slots=True)
class VideoEncode:
    """How pictures are encoded when they must be: constant quality, 8 bit, 4:2:0."""

    encoder: str
    crf: int
    speed: str

    @property
    def codec(self) -> str:
        return VIDEO_ENCODERS[self.encoder]


@dataclass(frozen=True, slots=True)
class AudioEncode:
    """How sound is encoded when it must be; `bitrate` in kbit/s."""

    encoder: str
    bitrate: int

    @property
    def codec(self) -> str:
        return AUDIO_ENCODERS[self.encoder]


@dataclass(frozen=True, slots=True)
class Rung:
    """One size of a ladder: its shorter side in pixels, and its peak in kbit/s."""

    height: int
    max_bitrate: int


@dataclass(frozen=True, slots=True)
class Preset:
    """One thing that people can ask for; the fields are told in `presets.toml`."""

    name: str
    title: str
    kind: PresetKind
    format: str
    containers: tuple[str, ...]
    audio_codecs: tuple[str, ...]
    video_codecs: tuple[str, ...] = ()
    format_sort: tuple[str, ...] = ()
    max_height: int | None = None
    fast_start: bool = False
    video: VideoEncode | None = None
    audio: AudioEncode | None = None
    #: From the largest to the smallest; not empty: the result is an HLS package.
    ladder: tuple[Rung, ...] = ()

    def accepts_video(self, codec: str) -> bool:
        """Whether pictures of this codec are good as they are."""
        return ANY in self.video_codecs or codec in self.video_codecs

    def accepts_audio(self, codec: str) -> bool:
        """Whether sound of this codec is good as it is."""
        return ANY in self.audio_codecs or codec in self.audio_codecs


def load_presets(extra_file: Path | None = None) -> Mapping[str, Preset]:
    """The built-in presets, and those of an operator's own file, by name.

    Raises:
        ConfigError: the file is missing, not TOML, or says something wrong; or it names a
            built-in preset again, whose meaning users hold on to.

    """
    text = resources.files(__package__).joinpath("presets.toml").read_text(encoding="utf-8")
    presets = dict(_parse(text, where="presets.toml"))
    if extra_file is not None:
        for name, preset in _parse(_read(extra_file), where=str(extra_file)).items():
            if name in presets:
                raise ConfigError(f"{extra_file}: preset {name} is built in; choose another name")
            presets[name] = preset
    return MappingProxyType(presets)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the presets in {path} can't be read: {exc}") from exc


def _parse(text: str, *, where: str) -> Mapping[str, Preset]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{where} is not TOML: {exc}") from exc
    presets = {}
    for name, table in tables.items():
        try:
            presets[name] = _preset(name, _as_table(table))
        except ValueError as exc:
            raise ConfigError(f"{where}: preset {name}: {exc}") from exc
    return presets


def _preset(name: str, table: _Table) -> Preset:
    if not _NAME.fullmatch(name):
        raise ValueError("a name has up to 32 small letters, digits and dashes")
    _known(table, [field.name for field in fields(Preset) if field.name != "name"])
    _required(
        table,
        [f.name for f in fields(Preset) if f.default is MISSING and f.name != "name"],
    )
    kind = PresetKind(_one_of(table, "kind", [kind.value for kind in PresetKind]))
    preset = Preset(
        name=name,
        title=_text(table, "title"),
        kind=kind,
        format=_text(table, "format"),
        format_sort=_texts(table, "format_sort"),
        max_height=_number(table, "max_height", 16, _MAX_HEIGHT) if "max_height" in table else None,
        containers=_texts(table, "containers", allowed=CONTAINERS),
        video_codecs=_texts(table, "video_codecs"),
        audio_codecs=_texts(table, "audio_codecs"),
        fast_start=_flag(table, "fast_start"),
        video=_video(_as_table(table["video"])) if "video" in table else None,
        audio=_audio(_as_table(table["audio"])) if "audio" in table else None,
        ladder=_ladder(table["ladder"]) if "ladder" in table else (),
    )
    _check(preset)
    return preset


def _check(preset: Preset) -> None:
    """What single fields can't tell: whether the encoders make what the preset accepts."""
    if not preset.containers:
        raise ValueError("containers must name at least one")
    if preset.kind is PresetKind.AUDIO and (preset.video or preset.video_codecs):
        raise ValueError("a preset for sound has no video or video_codecs")
    if preset.video and not preset.accepts_video(preset.video.codec):
        raise ValueError(f"video_codecs must hold {preset.video.codec}, which its encoder makes")
    if preset.audio and not preset.accepts_audio(preset.audio.codec):
        raise ValueError(f"audio_codecs must hold {preset.audio.codec}, which its encoder makes")
    if preset.audio is None and ANY not in preset.audio_codecs:
        raise ValueError('audio is needed unless audio_codecs is ["*"]')
    if preset.kind is not PresetKind.AUDIO and preset.video is None:
        if ANY not in preset.video_codecs:
            raise ValueError('video is needed unless video_codecs is ["*"]')
        if preset.max_height is not None:
            raise ValueError("max_height needs video, as larger pictures are encoded")
    if preset.ladder:
        _check_ladder(preset)


def _check_ladder(preset: Preset) -> None:
    """A ladder is H.264 and AAC in fragments of MP4: what every player of HLS takes."""
    if preset.video is None or preset.video.encoder != "libx264":
        raise ValueError("ladder needs video with encoder libx264")
    if preset.audio is None or preset.audio.encoder != "aac":
        raise ValueError("ladder needs audio with encoder aac")
    if preset.containers != ("mp4",):
        raise ValueError('containers must be ["mp4"] beside a ladder')
    if preset.max_height is not None:
        raise ValueError("max_height is told by the first rung of a ladder")
    heights = [rung.height for rung in preset.ladder]
    if heights != sorted(set(heights), reverse=True):
        raise ValueError("ladder must go from the largest height to the smallest, each once")


def _video(table: _Table) -> VideoEncode:
    names = ["encoder", "crf", "speed"]
    _known(table, names)
    _required(table, names)
    return VideoEncode(
        encoder=_one_of(table, "encoder", VIDEO_ENCODERS),
        crf=_number(table, "crf", 0, _MAX_CRF),
        speed=_text(table, "speed"),
    )


def _audio(table: _Table) -> AudioEncode:
    names = ["encoder", "bitrate"]
    _known(table, names)
    _required(table, names)
    return AudioEncode(
        encoder=_one_of(table, "encoder", AUDIO_ENCODERS),
        bitrate=_number(table, "bitrate", 8, _MAX_BITRATE),
    )


def _ladder(value: object) -> tuple[Rung, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_RUNGS:
        raise ValueError(f"ladder must be a list of 1 to {MAX_RUNGS} rungs")
    return tuple(_rung(number, rung) for number, rung in enumerate(value, start=1))


def _rung(number: int, value: object) -> Rung:
    names = ["height", "max_bitrate"]
    try:
        table = _as_table(value)
        _known(table, names)
        _required(table, names)
        return Rung(
            # 4:2:0 has no odd sizes.
            height=_even(table, "height", 16, _MAX_HEIGHT),
            max_bitrate=_number(table, "max_bitrate", 32, _MAX_VIDEO_BITRATE),
        )
    except ValueError as exc:
        raise ValueError(f"ladder, rung {number}: {exc}") from exc


def _as_table(value: object) -> _Table:
    if not isinstance(value, dict):
        raise ValueError("a table of settings is needed")  # noqa: TRY004  # mapped with the rest
    return cast("_Table", value)


def _known(table: _Table, names: Iterable[str]) -> None:
    if unknown := sorted(set(table) - set(names)):
        raise ValueError(f"unknown setting {unknown[0]}")


def _required(table: _Table, names: Iterable[str]) -> None:
    if missing := [name for name in names if name not in table]:
        raise ValueError(f"{missing[0]} is missing")


def _text(table: _Table, name: str) -> str:
    value = table[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text")
    return value


def _one_of(table: _Table, name: str, allowed: Iterable[str]) -> str:
    value = _text(table, name)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value}")
    return value


def _texts(table: _Table, name: str, *, allowed: Iterable[str] = ()) -> tuple[str, ...]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{name} must be a list of texts")
    if allowed and (wrong := [item for item in value if item not in allowed]):
        raise ValueError(f"{name} must be of {', '.join(allowed)}, not {wrong[0]}")
    return tuple(value)


def _number(table: _Table, name: str, low: int, high: int) -> int:
    value = table[name]
    # A bool is an int in Python, and never what is meant here.
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}")
    return value


def _even(table: _Table, name: str, low: int, high: int) -> int:
    value = _number(table, name, low, high)
    if value % 2:
        raise ValueError(f"{name} must be even, not {value}")
    return value


def _flag(table: _Table, name: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")  # noqa: TRY004  # mapped with the rest
    return value
