"""Source files become an HLS package: probe, plan, run, write the master playlist, verify."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sluice_core.domain.job import PLAYLIST
from sluice_transcoder.children import Workplace, probe
from sluice_transcoder.gaps import Lacking
from sluice_transcoder.hls.command import build_package_command
from sluice_transcoder.hls.ladder import AUDIO_NAME, LadderPlan, plan_ladder
from sluice_transcoder.hls.playlist import (
    AAC_LC,
    Media,
    SoundGroup,
    Variant,
    avc_codec,
    master_text,
)
from sluice_transcoder.hls.verify import check_master, check_renditions
from sluice_transcoder.plan import Action
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.transcode import (
    MadeFile,
    convert_told,
    probe_sources,
    storage_errors,
    sync,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sluice_core.domain.presets import Preset
    from sluice_transcoder.probe import Probe
    from sluice_transcoder.tools import Tools

MASTER = "master.m3u8"
PLAYLIST_TYPE = "application/vnd.apple.mpegurl"

_PART = ".hls.part"
_DONE = "hls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The finished files, synced to disk; `duration` in seconds of the longest."""

    files: tuple[MadeFile, ...]
    duration: float | None
    action: Action
    share: float = 1.0


def package(
    sources: Sequence[Path],
    preset: Preset,
    out_dir: Path,
    *,
    tools: Tools,
    threads: int,
    place: Workplace,
    lacking: Sequence[Lacking] = (),
    on_plan: Callable[[LadderPlan], None] = lambda _plan: None,
    on_progress: Callable[[EncodeProgress], None] = lambda _progress: None,
) -> Package:
    """Make the folder `out_dir/hls` of the sources; arguments and faults as of `transcode`.

    Nothing stands under that name before it is whole, checked and synced; what a failed run wrote
    is deleted.
    """
    probes = probe_sources(sources, tools, place, lacking)
    plan = plan_ladder(probes, preset, tone_map=tools.tone_map)
    on_plan(plan)
    with _temporary(place.scratch / _PART) as part:
        argv = build_package_command(plan, sources, _PART, ffmpeg=tools.ffmpeg, threads=threads)
        written = convert_told(
            argv,
            plan.duration,
            part,
            place,
            # Of several files ffmpeg does not tell the size.
            lambda told: on_progress(replace(told, bytes=_size(part))),
            marker=lambda: _size(part),
        )
        made = {
            name: probe(part / f"{name}.mp4", ffprobe=tools.ffprobe, place=place)
            for name in plan.names
        }
        with storage_errors():
            playlists = {name: (part / f"{name}.m3u8").read_text() for name in plan.names}
        media = check_renditions(playlists, made, plan, written=written)
        with storage_errors():
            (part / MASTER).write_text(_master(part, media, made))
            check_master((part / MASTER).read_text(), plan)
        _publish(part, out_dir / _DONE)
    return Package(
        files=_files(out_dir / _DONE, plan),
        duration=max(found.seconds for found in media.values()),
        action=plan.action,
    )


def _master(part: Path, media: Mapping[str, Media], made: Mapping[str, Probe]) -> str:
    """The master playlist's text, from what was made."""
    heard = media.get(AUDIO_NAME)
    variants = [_variant(part, name, found, made[name]) for name, found in media.items()]
    videos = [variant for variant in variants if variant.size]
    if heard is None or not videos:
        return master_text(variants, None)
    channels = made[AUDIO_NAME].audios[0].channels
    sound = SoundGroup(uri=f"{AUDIO_NAME}.m3u8", media=heard, channels=channels)
    return master_text(videos, sound)


def _variant(part: Path, name: str, media: Media, found: Probe) -> Variant:
    uri = f"{name}.m3u8"
    if name == AUDIO_NAME:
        return Variant(uri=uri, media=media, codec=AAC_LC)
    [stream] = found.videos
    with (part / media.uri).open("rb") as file:
        codec = avc_codec(file.read(media.header))
    size = (stream.width, stream.height)
    return Variant(uri=uri, media=media, codec=codec, size=size, frame_rate=stream.avg_fps)


def _files(folder: Path, plan: LadderPlan) -> tuple[MadeFile, ...]:
    files = [_playlist(folder / MASTER)]
    for name in plan.names:
        kind = "audio" if name == AUDIO_NAME else "video"
        media = MadeFile(
            path=folder / f"{name}.mp4",
            kind=kind,
            content_type=f"{kind}/mp4",
            extension="mp4",
            name=f"{name}.mp4",
        )
        files += [_playlist(folder / f"{name}.m3u8"), media]
    return tuple(files)


def _playlist(path: Path) -> MadeFile:
    return MadeFile(
        path=path,
        kind=PLAYLIST,
        content_type=PLAYLIST_TYPE,
        extension="m3u8",
        name=path.name,
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.mp4"))


@contextmanager
def _temporary(part: Path) -> Iterator[Path]:
    """An empty folder for half a package, gone afterwards."""
    shutil.rmtree(part, ignore_errors=True)
    with storage_errors():
        part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _publish(part: Path, final: Path) -> None:
    with storage_errors():
        for path in part.iterdir():
            sync(path)
        sync(part)
        part.replace(final)
        sync(final.parent)
