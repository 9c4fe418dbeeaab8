"""The transcode stage: sources in storage become the finished file, and the job a success."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.adapters.cores import usable_cores
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.job import Artifact, Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.names import file_name
from sluice_core.domain.paths import final_key
from sluice_core.domain.plan import SUBTITLE, Source
from sluice_core.domain.presets import Preset, load_presets
from sluice_core.runtime import worker
from sluice_core.runtime.children import ForkServer, Preforked, child_environment
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.disk import Disk, Room, open_disk
from sluice_core.runtime.helping import Helped
from sluice_core.runtime.pieces import owner
from sluice_core.runtime.run import Finished, Run
from sluice_transcoder import gaps, subtitles
from sluice_transcoder.children import Workplace
from sluice_transcoder.digest import sha256_of
from sluice_transcoder.encode import Job as Encode
from sluice_transcoder.hls.ladder import LadderPlan
from sluice_transcoder.hls.package import Package, package
from sluice_transcoder.kept import Shelf
from sluice_transcoder.line import Line, SharedLine
from sluice_transcoder.plan import Action, Plan, make_plan
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.segments import Cutting, help_with_segments
from sluice_transcoder.tools import Tools, inspect_tools
from sluice_transcoder.transcode import MadeFile, Result, probe_sources, transcode
from sluice_transcoder.turns import Turns

_PIECE = 1024 * 1024


def main(preforked: Preforked | None = None) -> None:
    """Run the transcoder until it is told to stop."""
    worker.main(
        Actor.TRANSCODE,
        lambda deps: open_handler(deps, preforked),
        program=(sys.executable, "-m", "sluice_transcoder"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What all runs of a process work with."""

    presets: Mapping[str, Preset]
    tools: Tools
    server: ForkServer
    #: For each part of one ffmpeg.
    threads: int
    disk: Disk


@contextmanager
def open_handler(deps: StageDeps, preforked: Preforked | None = None) -> Iterator[Helped]:
    """The stage's handler, with a small server that starts its commands."""
    presets = load_presets(deps.settings.jobs.presets_file)
    tools = inspect_tools(ffmpeg_tools())
    folder = deps.settings.store.scratch_dir
    env = child_environment(home=folder, base={})
    threads = max(1, usable_cores() // deps.limits.concurrency)
    disk = open_disk(deps)
    with ForkServer(module=None, env=env, cwd=folder, preforked=preforked) as server:
        shop = Shop(presets=presets, tools=tools, server=server, threads=threads, disk=disk)
        yield Helped(partial(handle, shop=shop), partial(help_with, shop=shop))


def handle(run: Run, *, shop: Shop) -> Finished:
    """Make, check and store the finished file of one job."""
    job = run.job
    preset = shop.presets.get(job.request.preset)
    if preset is None:
        raise SluiceError(f"there is no preset {job.request.preset!r} any more")
    everything = sources_of(job)
    sources = [source for source in everything if source.kind != SUBTITLE]
    size = _size(sources)
    with _brought(run, sources, shop.disk, stored=size) as (room, paths):
        watch = _Watch(run, room, size)
        began = time.monotonic()
        cutting = cutting_of(run, sources, watch)
        place = _place(run, shop, run.stop)
        lacking = [
            gaps.look(path, source.gap, tools=shop.tools, place=place)
            for path, source in zip(paths, sources, strict=True)
        ]
        make = package if preset.ladder else partial(transcode, cutting=cutting)
        result: Result | Package = make(
            paths,
            preset,
            run.scratch,
            tools=shop.tools,
            threads=shop.threads,
            place=replace(place, ends_early=any(source.ends_early for source in lacking)),
            lacking=lacking,
            on_plan=watch.begin,
            on_progress=watch.progress,
        )
        if result.action is Action.ENCODE and result.duration and result.share:
            took = time.monotonic() - began
            run.observe("transcode_speed_ratio", result.duration * result.share / took)
        artifacts = [store(run, file) for file in result.files]
    beside = [source for source in everything if source.kind == SUBTITLE]
    return Finished(
        [*artifacts, *subtitles.store(run, beside)],
        fields={"duration": result.duration or job.duration},
        gaps=[*gaps.named(lacking), *subtitles.gaps(beside)],
    )


def help_with(run: Run, *, shop: Shop) -> bool:
    """Encode segments for the run that owns the job; True when this slot is wanted elsewhere."""
    preset = shop.presets.get(run.job.request.preset)
    if preset is None or preset.ladder:
        return False
    sources = [source for source in sources_of(run.job) if source.kind != SUBTITLE]
    with _brought(run, sources, shop.disk, stored=0) as (room, paths):
        turns = Turns(run, on_progress=lambda size: room.written(done=size, whole=None))
        place = _place(run, shop, turns.stop)
        probes = probe_sources(paths, shop.tools, place)
        encode = Encode(
            sources=paths,
            probes=probes,
            plan=make_plan(probes, preset, tone_map=shop.tools.tone_map),
            folder=run.scratch,
            tools=shop.tools,
            threads=shop.threads,
            place=place,
        )
        cutting = Cutting(
            seconds=run.deps.settings.jobs.segment_seconds,
            sources=_names(sources),
            shelf=_shelf(run),
            on_segment=lambda: run.deps.failpoints.hit("help.mid_segment"),
        )
        return help_with_segments(encode, turns, cutting=cutting)


@contextmanager
def _brought(
    run: Run, sources: Sequence[Source], disk: Disk, *, stored: int
) -> Iterator[tuple[Room, list[Path]]]:
    """Room for a run's files, and local paths of its sources; `stored` as in `Disk.room`."""
    storage = run.deps.storage
    # What a storage elsewhere holds is read through copies on this disk.
    copied = _size(sources) if storage.outlives_machine else None
    with disk.room(run.scratch, whole=copied, stored=stored) as room, ExitStack() as stack:
        yield room, [stack.enter_context(storage.local(s.key, run.scratch)) for s in sources]


def _place(run: Run, shop: Shop, stop: Callable[[], str | None]) -> Workplace:
    return Workplace(
        scratch=run.scratch,
        stop=stop,
        deadline_s=run.hard_left(),
        stall_s=run.deps.limits.stall_timeout,
        server=shop.server,
        on_start=run.on_child,
        lost_child=run.lost_child,
    )


def _size(sources: Sequence[Source]) -> int:
    return sum(source.bytes for source in sources)


def _names(sources: Sequence[Source]) -> list[tuple[str, int]]:
    return [(source.key, source.bytes) for source in sources]


def _shelf(run: Run) -> Shelf:
    return Shelf(run.deps.storage, run.id, run.scratch, lambda: owner(run))


class _Watch:
    """Tells people how far a run is, and looks after its room on the disk.

    Args:
        run: whose.
        room: on the disk.
        size: bytes of all sources.

    """

    def __init__(self, run: Run, room: Room, size: int) -> None:
        self._run = run
        self._room = room
        self._size = size
        self._whole: int | None = None

    def begin(self, plan: Plan | LadderPlan) -> None:
        """Ask for the room that the result takes, where that can be told.

        Raises:
            SluiceError: `disk_full`.

        """
        if plan.action is Action.KEEP:
            return
        if plan.action is Action.REMUX:
            self._whole = self._size
        if isinstance(plan, LadderPlan) and plan.most_bytes is not None:
            # Together they may be far larger than the source; its size tells nothing.
            self._whole = plan.most_bytes
            self._room.stored(plan.most_bytes)
        self._room.written(done=0, whole=self._whole)

    def join(self, segments: int) -> None:
        """Ask for the room that a second copy of the segments takes. Raises as `begin`.

        Args:
            segments: bytes of all of them.

        """
        self._room.written(done=segments, whole=2 * segments)
        self._room.stored(segments)

    def progress(self, progress: EncodeProgress) -> None:
        """Told some times a second. Raises as `begin`, and what the run raises."""
        self._room.written(done=progress.bytes or 0, whole=self._whole)
        self._run.progress(to_progress(progress))


def cutting_of(run: Run, sources: Sequence[Source], watch: _Watch) -> Cutting:
    """How the run's encode is cut, if it is long enough."""
    limits = run.deps.settings.jobs
    return Cutting(
        seconds=limits.segment_seconds,
        sources=_names(sources),
        shelf=_shelf(run),
        line=line_of(run, sources, helpers=limits.segment_helpers),
        on_segment=lambda: run.deps.failpoints.hit("transcode.mid_segment"),
        on_kept=run.put_away,
        on_join=watch.join,
    )


def line_of(run: Run, sources: Sequence[Source], *, helpers: int) -> Line:
    """Who encodes: the run alone, or also up to so many others."""
    if not helpers or any(source.gap for source in sources):
        # What a source with gaps promises is for its own run to find out.
        return Line()
    line = SharedLine(run, helpers=helpers)
    if run.deps.alone or run.job.losses:
        # What may bring workers down is left to the one that has it, by earlier helpers, too.
        line.withdraw()
        return Line()
    return line


def sources_of(job: Job) -> list[Source]:
    """What the downloader left.

    Raises:
        SluiceError: the row has none; a job never comes here without.

    """
    if not job.sources:
        raise SluiceError("the fetched files of this job are gone")
    return [Source.from_json(source) for source in job.sources]


def store(run: Run, made: MadeFile) -> Artifact:
    """Put a finished file under its final key, which no row points at yet."""
    run.check()
    fallback = f"sluice-{run.job.id}"
    name = made.name or file_name(run.job.title, made.extension, fallback=fallback)
    key = final_key(run.id, name)
    digest, size = sha256_of(made.path)
    run.deps.storage.put(key, made.path)
    return Artifact(
        name=name,
        kind=made.kind,
        key=key,
        bytes=size,
        sha256=digest,
        content_type=made.content_type,
    )


def to_progress(progress: EncodeProgress) -> Progress:
    """What people are shown of an encode."""
    return Progress(
        percent=progress.percent, bytes=progress.bytes, eta_seconds=progress.eta_seconds
    )
