"""Whether a package is what was planned: read as a player reads it, from the master playlist on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice_core.domain.errors import SluiceError
from sluice_transcoder.hls.ladder import AUDIO_NAME
from sluice_transcoder.hls.playlist import Media, read_master, read_media
from sluice_transcoder.verify import check_length

if TYPE_CHECKING:
    from sluice_transcoder.hls.ladder import LadderPlan, VideoRendition
    from sluice_transcoder.probe import Probe

#: Times in playlists are rounded to a microsecond.
_ROUNDING = 0.001


def check_renditions(
    playlists: Mapping[str, str], probes: Mapping[str, Probe], plan: LadderPlan, *, written: float
) -> dict[str, Media]:
    """Refuse renditions that are not what was planned; their playlists, read.

    Args:
        playlists: text of each media playlist, by the rendition's name.
        probes: each rendition's file, probed, by name.
        plan: what they were made by.
        written: seconds that ffmpeg says it wrote.

    Raises:
        SluiceError: `incomplete` when the media ends too early, `transcode_failed` otherwise.

    """
    media = {name: _media_of(name, playlists) for name in plan.names}
    for name in plan.names:
        _check_file(name, media[name], probes[name])
    for rendition in plan.pictures.renditions if plan.pictures else ():
        _check_pictures(rendition, probes[rendition.name])
    if plan.sound:
        _check_sound(probes[AUDIO_NAME])
    _check_aligned([media[name] for name in plan.names if name != AUDIO_NAME])
    _check_lengths(media, plan, written)
    return media


def check_master(text: str, plan: LadderPlan) -> None:
    """Refuse a master playlist that does not name what was planned, and nothing else.

    Raises:
        SluiceError: `transcode_failed`.

    """
    try:
        master = read_master(text)
    except ValueError as exc:
        raise _refused(f"the master playlist can't be used: {exc}") from exc
    sounds = [f"{AUDIO_NAME}.m3u8"] if plan.sound else []
    variants: dict[str, tuple[int, int] | None] = {}
    if plan.pictures:
        variants.update({f"{r.name}.m3u8": (r.width, r.height) for r in plan.pictures.renditions})
    else:
        # Nothing to see: the sound is what there is to choose.
        variants, sounds = dict.fromkeys(sounds), []
    if dict(master.variants) != variants or list(master.sounds) != sounds:
        raise _refused("the master playlist does not name what was made")


def _media_of(name: str, playlists: Mapping[str, str]) -> Media:
    try:
        return read_media(playlists[name])
    except ValueError as exc:
        raise _refused(f"the playlist of {name} can't be used: {exc}") from exc


def _check_file(name: str, media: Media, probe: Probe) -> None:
    """The playlist covers the file, byte for byte."""
    if not probe.layout.complete:
        raise _refused(f"the end of {name} is missing")
    at = media.header
    for segment in media.segments:
        if segment.offset != at:
            raise _refused(f"the segments of {name} are not in one piece")
        at += segment.size
    if media.uri != f"{name}.mp4" or at != probe.size:
        raise _refused(f"the playlist of {name} is not that of its file")


def _check_pictures(rendition: VideoRendition, probe: Probe) -> None:
    streams = [(s.kind.value, s.codec, s.width, s.height) for s in probe.streams]
    if streams != [("video", "h264", rendition.width, rendition.height)]:
        raise _refused(f"{rendition.name} does not hold the pictures that were planned")


def _check_sound(probe: Probe) -> None:
    if [(s.kind.value, s.codec) for s in probe.streams] != [("audio", "aac")]:
        raise _refused("the sound is not what was planned")


def _check_aligned(videos: list[Media]) -> None:
    """A player changes between renditions at the end of any segment."""
    for media in videos[1:]:
        if len(media.segments) != len(videos[0].segments):
            raise _refused("the renditions are not cut at the same times")
        pairs = zip(media.segments, videos[0].segments, strict=True)
        if any(abs(one.seconds - other.seconds) > _ROUNDING for one, other in pairs):
            raise _refused("the renditions are not cut at the same times")


def _check_lengths(media: Mapping[str, Media], plan: LadderPlan, written: float) -> None:
    """The longest is as long as the sources promise; each one as long as its own stream."""
    expected = plan.duration if plan.duration is not None else written
    if expected:
        check_length(max(found.seconds for found in media.values()), expected)
    for name, found in media.items():
        part = plan.sound if name == AUDIO_NAME else plan.pictures
        if part and part.seconds:
            check_length(found.seconds, part.seconds)


def _refused(message: str) -> SluiceError:
    return SluiceError(message, code="transcode_failed")
