"""Which rungs of a ladder a source gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_core.domain.errors import SluiceError
from sluice_core.domain.presets import AudioEncode, Preset, Rung, VideoEncode
from sluice_transcoder.plan import (
    Action,
    AudioPlan,
    Found,
    ToneMap,
    best_audio,
    best_video,
    duration_of,
    encoded_audio,
    longest_gap,
    sized,
    target_size,
    whole_frames,
)

if TYPE_CHECKING:
    from sluice_transcoder.probe import Probe, Stream

#: Name of the rendition that holds the sound.
AUDIO_NAME = "audio"

#: The source's own size is worth a rung where the next smaller one loses more than a fifth of it.
_NEAR = 0.8

_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoRendition:
    """One size: width and height in pixels, both even; its peak in kbit/s."""

    name: str
    width: int
    height: int
    max_bitrate: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Where the pictures come from, and what each rendition makes of them.

    `shared` filters run once, in front of all renditions; `seconds` is the length of the stream,
    None when not known for sure.
    """

    source: int
    stream: int
    encode: VideoEncode
    shared: tuple[str, ...]
    renditions: tuple[VideoRendition, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """The one sound track; `seconds` as of `Pictures`."""

    track: AudioPlan
    encode: AudioEncode
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPlan:
    """What to make. `duration` in seconds, None when not known for sure."""

    pictures: Pictures | None
    sound: Sound | None
    duration: float | None
    action: Action = Action.ENCODE
    #: Seconds of the longest gap that is named of a source.
    longest_gap: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Of all renditions, without extensions."""
        videos = [r.name for r in self.pictures.renditions] if self.pictures else []
        return (*videos, *([AUDIO_NAME] if self.sound else []))

    @property
    def most_bytes(self) -> int | None:
        """What the peaks allow; None when the length is not known."""
        if self.duration is None:
            return None
        rates = [r.max_bitrate for r in self.pictures.renditions] if self.pictures else []
        rates += [self.sound.encode.bitrate] if self.sound else []
        return int(sum(rates) * 1000 / _BITS * self.duration)


def plan_ladder(
    probes: Sequence[Probe], preset: Preset, *, tone_map: ToneMap = ToneMap.NONE
) -> LadderPlan:
    """Decide. Everything is encoded: key frames must fall on the same times in every rendition.

    Raises:
        SluiceError: `no_media`, there are no pictures and no sound.

    """
    video = best_video(probes)
    audio = next(iter(best_audio(probes, every=False)), None)
    found = [track for track in (video, audio) if track]
    if not found:
        raise SluiceError("there is nothing to see or to hear in it", code="no_media")
    return LadderPlan(
        pictures=_pictures(video, preset, tone_map) if video else None,
        sound=_sound(audio, preset) if audio else None,
        duration=duration_of(found),
        longest_gap=longest_gap(probes),
    )


def rungs_for(ladder: Sequence[Rung], shorter: int) -> tuple[Rung, ...]:
    """The rungs for pictures whose shorter side has so many pixels; never larger, at least one.

    Between two rungs the source's own size comes first, with the peak of the larger one.
    """
    fitting = [rung for rung in ladder if rung.height <= shorter]
    larger = [rung for rung in ladder if rung.height > shorter]
    if larger and (not fitting or fitting[0].height < shorter * _NEAR):
        own = Rung(height=max(2, shorter // 2 * 2), max_bitrate=larger[-1].max_bitrate)
        return (own, *fitting)
    return tuple(fitting)


def _pictures(found: Found, preset: Preset, tone_map: ToneMap) -> Pictures:
    if preset.video is None:
        raise SluiceError(f"preset {preset.name} has a ladder and no video")
    stream = found.stream
    return Pictures(
        source=found.source,
        stream=stream.index,
        encode=preset.video,
        shared=whole_frames(stream),
        renditions=tuple(
            _rendition(stream, rung, tone_map)
            for rung in rungs_for(preset.ladder, min(stream.shown_size))
        ),
        seconds=_seconds(found),
    )


def _rendition(stream: Stream, rung: Rung, tone_map: ToneMap) -> VideoRendition:
    width, height = target_size(*stream.shown_size, rung.height)
    # Rounding to even sizes would give each rendition pixels of a shape of its own.
    square = ("setsar=1",) if stream.square_pixels else ()
    return VideoRendition(
        name=f"{rung.height}p",
        width=width,
        height=height,
        max_bitrate=rung.max_bitrate,
        filters=(*sized(stream, rung.height, tone_map), *square),
    )


def _sound(found: Found, preset: Preset) -> Sound:
    encode = preset.audio
    if encode is None:
        raise SluiceError(f"preset {preset.name} has a ladder and no audio")
    track = encoded_audio(found, encode)
    return Sound(track=track, encode=encode, seconds=_seconds(found))


def _seconds(found: Found) -> float | None:
    """Of the stream itself: pictures and sound need not end together."""
    return None if found.probe.duration_is_guess else found.stream.duration
