"""From what the sources hold and what is wanted to what must be done. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sluice_core.domain.errors import ErrorClass, SluiceError
from sluice_core.domain.presets import ANY, AudioEncode, Preset, PresetKind, VideoEncode
from sluice_transcoder.containers import CONTAINERS, Container

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sluice_transcoder.probe import Probe, Stream

#: What every player of H.264 takes.
_PLAIN_FORMATS = ("", "yuv420p", "yuvj420p")

_STEREO = 2


class Action(StrEnum):
    """What the run costs: nothing, a copy, or computing."""

    KEEP = "keep"
    REMUX = "remux"
    ENCODE = "encode"


class ToneMap(StrEnum):
    """How this ffmpeg turns HDR into SDR."""

    #: zscale and tonemap (zimg).
    ZSCALE = "zscale"
    #: The scale filter of ffmpeg 8 and newer.
    SCALE = "scale"
    #: Not at all: the picture looks pale, but plays.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoPlan:
    """What becomes of the pictures. `encode` None copies them."""

    source: int
    stream: int
    codec: str
    encode: VideoEncode | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioPlan:
    """What becomes of one sound track. `encode` None copies it; `channels` None keeps them."""

    source: int
    stream: int
    codec: str
    encode: AudioEncode | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do. `duration` in seconds is what the result must last, None when not known."""

    action: Action
    container: Container
    video: VideoPlan | None
    audio: tuple[AudioPlan, ...]
    duration: float | None
    #: Video and sound: what people will call the result.
    kind: str
    #: Seconds of the longest gap that is named of a source.
    longest_gap: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """A stream with its place."""

    source: int
    stream: Stream
    probe: Probe


def make_plan(probes: Sequence[Probe], preset: Preset, *, tone_map: ToneMap = ToneMap.NONE) -> Plan:
    """Decide; prefers nothing over a copy, and a copy over encoding.

    Raises:
        SluiceError: `no_media` when the sources hold nothing that the preset wants,
            `transcode_failed` when no container of the preset takes what they hold.

    """
    video = None if preset.kind is PresetKind.AUDIO else best_video(probes)
    audio = best_audio(probes, every=preset.audio is None)
    if video is None and not audio:
        wanted = "sound" if preset.kind is PresetKind.AUDIO else "pictures or sound"
        raise SluiceError(f"there is no {wanted} in what was fetched", code="no_media")
    container = _container(probes, preset, video, audio)
    video_plan = _plan_video(video, preset, container, tone_map) if video else None
    audio_plans = tuple(_plan_audio(track, preset, container) for track in audio)
    encodes = any(plan.encode for plan in (video_plan, *audio_plans) if plan)
    kept = not encodes and _may_keep(probes, preset, container, has_video=video is not None)
    return Plan(
        action=Action.KEEP if kept else Action.ENCODE if encodes else Action.REMUX,
        container=probes[0].container if kept else container,
        video=video_plan,
        audio=audio_plans,
        duration=duration_of([*([video] if video else []), *audio]),
        kind="video" if video else "audio",
        longest_gap=longest_gap(probes),
    )


def longest_gap(probes: Sequence[Probe]) -> float:
    return max((probe.longest_gap for probe in probes), default=0.0)


def best_video(probes: Sequence[Probe]) -> Found | None:
    found = [Found(i, s, p) for i, p in enumerate(probes) for s in p.videos]
    return max(
        found, key=lambda f: (f.stream.default, f.stream.width * f.stream.height), default=None
    )


def best_audio(probes: Sequence[Probe], *, every: bool) -> tuple[Found, ...]:
    """The main track; or `every` track of the source that has it, when copies cost nothing."""
    found = [Found(i, s, p) for i, p in enumerate(probes) for s in p.audios]
    if not found:
        return ()
    # A source without pictures was fetched for its sound.
    best = max(found, key=lambda f: (not f.probe.videos, f.stream.default, f.stream.channels))
    return tuple(f for f in found if f.source == best.source) if every else (best,)


def _container(
    probes: Sequence[Probe], preset: Preset, video: Found | None, audio: Iterable[Found]
) -> Container:
    names = list(preset.containers)
    own = {probe.container.name for probe in probes}
    # WebM pictures and WebM sound stay WebM, although MP4 might take them too.
    if len(own) == 1 and own <= set(names):
        names = [*own, *names]
    for container in (CONTAINERS[name] for name in names):
        if container.sound_only == (video is None) and _fits(container, preset, video, audio):
            return container
    raise SluiceError(
        f"no container of preset {preset.name} takes what was fetched",
        code="transcode_failed",
        error_class=ErrorClass.PERMANENT,
    )


def _fits(
    container: Container, preset: Preset, video: Found | None, audio: Iterable[Found]
) -> bool:
    if video and not preset.video and not container.holds(video=video.stream.codec):
        return False
    if video and preset.video and not container.holds(video=preset.video.codec):
        return False
    if preset.audio:
        return container.holds(audio=preset.audio.codec)
    return all(container.holds(audio=track.stream.codec) for track in audio)


def _plan_video(found: Found, preset: Preset, container: Container, tone_map: ToneMap) -> VideoPlan:
    stream, encode = found.stream, preset.video
    place = {"source": found.source, "stream": stream.index}
    if encode is None or _video_is_fine(stream, preset, container):
        return VideoPlan(source=found.source, stream=stream.index, codec=stream.codec)
    return VideoPlan(
        source=place["source"],
        stream=place["stream"],
        codec=encode.codec,
        encode=encode,
        filters=_filters(stream, preset.max_height, tone_map),
    )


def _video_is_fine(stream: Stream, preset: Preset, container: Container) -> bool:
    if not preset.accepts_video(stream.codec) or not container.holds(video=stream.codec):
        return False
    # "Any codec" is any form too; named codecs are wanted in the form that plays everywhere.
    plain = ANY in preset.video_codecs or stream.pix_fmt in _PLAIN_FORMATS
    return plain and (preset.max_height is None or min(stream.shown_size) <= preset.max_height)


def _filters(stream: Stream, max_height: int | None, tone_map: ToneMap) -> tuple[str, ...]:
    """The filter chain; ffmpeg turns rotated pictures upright in front of it."""
    return (*whole_frames(stream), *sized(stream, max_height, tone_map))


def whole_frames(stream: Stream) -> tuple[str, ...]:
    """Filters that make pictures of interlaced halves."""
    return ("bwdif=mode=send_frame",) if stream.interlaced else ()


def sized(stream: Stream, max_height: int | None, tone_map: ToneMap) -> tuple[str, ...]:
    """Filters to the wanted size, in the form that plays everywhere."""
    width, height = stream.shown_size
    target = target_size(width, height, max_height)
    chain = [resize(width, height, target)] if target != (width, height) else []
    if stream.hdr:
        chain += TONE_MAPS[tone_map]
    return (*chain, "format=yuv420p")


def target_size(width: int, height: int, max_height: int | None) -> tuple[int, int]:
    """Never larger, both even, as 4:2:0 wants; `max_height` counts the shorter side.

    So 1080p is the same picture, upright or lying.
    """
    shorter = min(width, height)
    if max_height is None or shorter <= max_height:
        return max(2, width // 2 * 2), max(2, height // 2 * 2)
    scale = max_height / shorter
    return _even(width * scale), _even(height * scale)


def _even(length: float) -> int:
    return max(2, round(length / 2) * 2)


def resize(width: int, height: int, target: tuple[int, int]) -> str:
    wide, high = target
    # One odd line is cut off: scaling by a pixel would blur every other one.
    if 0 <= width - wide <= 1 and 0 <= height - high <= 1:
        return f"crop={wide}:{high}:0:0"
    return f"scale={wide}:{high}"


TONE_MAPS: dict[ToneMap, list[str]] = {
    ToneMap.NONE: [],
    ToneMap.SCALE: [
        "scale=out_primaries=bt709:out_transfer=bt709:out_color_matrix=bt709:out_range=tv"
    ],
    ToneMap.ZSCALE: [
        "zscale=transfer=linear:npl=100",
        "format=gbrpf32le",
        "zscale=primaries=bt709",
        "tonemap=hable:desat=0",
        "zscale=transfer=bt709:matrix=bt709:range=tv",
    ],
}


def _plan_audio(found: Found, preset: Preset, container: Container) -> AudioPlan:
    stream, encode = found.stream, preset.audio
    copies = preset.accepts_audio(stream.codec) and container.holds(audio=stream.codec)
    if encode is None or copies:
        return AudioPlan(source=found.source, stream=stream.index, codec=stream.codec)
    return encoded_audio(found, encode)


def encoded_audio(found: Found, encode: AudioEncode) -> AudioPlan:
    """A track that is encoded, whatever it was."""
    return AudioPlan(
        source=found.source,
        stream=found.stream.index,
        codec=encode.codec,
        encode=encode,
        # Encoders refuse some layouts of many channels; stereo plays everywhere.
        channels=_STEREO if found.stream.channels > _STEREO else None,
    )


def _may_keep(
    probes: Sequence[Probe], preset: Preset, container: Container, *, has_video: bool
) -> bool:
    """Whether the one source is the result already, so that not even a copy is needed."""
    if len(probes) != 1:
        return False
    probe = probes[0]
    if preset.kind is PresetKind.AS_SERVED:
        return True
    if probe.ends_early:
        # Its header promises more than players find.
        return False
    if probe.container.name != container.name or bool(probe.videos) != has_video:
        return False
    layout = probe.layout
    in_front = layout.fast_start and not layout.fragmented
    return in_front or not (preset.fast_start and container.indexed)


def duration_of(found: Iterable[Found]) -> float | None:
    """The longest chosen stream; None as soon as one of them is not known for sure."""
    lengths = []
    for track in found:
        length = track.stream.duration or track.probe.duration
        if length is None or track.probe.duration_is_guess:
            return None
        lengths.append(length)
    return max(lengths, default=None)
