"""The transcode stage: sources in storage become the finished file, and the job a success."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

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
from sluice_core.runtime.pieces import owner
from sluice_core.runtime.run import Finished, Run
from sluice_core.runtime.stage import Handler
from sluice_transcoder import subtitles
from sluice_transcoder.children import Workplace
from sluice_transcoder.digest import sha256_of
from sluice_transcoder.hls.ladder import LadderPlan
from sluice_transcoder.hls.package import Package, package
from sluice_transcoder.kept import Shelf
from sluice_transcoder.plan import Action, Plan
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.segments import Cutting
from sluice_transcoder.tools import Tools, inspect_tools
from sluice_transcoder.transcode import MadeFile, Result, transcode

_PIECE = 1024 * 1024


def main(preforked: Preforked | None = None) -> None:
    """Run the transcoder until it is told to stop."""
    worker.main(
        Actor.TRANSCODE,
        lambda deps: open_handler(deps, preforked),
        program=(sys.executable, "-m", "sluice_transcoder"),
    )


@contextmanager
def open_handler(deps: StageDeps, preforked: Preforked | None = None) -> Iterator[Handler]:
    """The stage's handler, with a small server that starts its commands."""
    presets = load_presets(deps.settings.jobs.presets_file)
    tools = inspect_tools(ffmpeg_tools())
    folder = deps.settings.store.scratch_dir
    env = child_environment(home=folder, base={})
    threads = max(1, usable_cores() // deps.limits.concurrency)
    disk = open_disk(deps)
    with ForkServer(module=None, env=env, cwd=folder, preforked=preforked) as server:

        def work(run: Run) -> Finished:
            return handle(
                run, presets=presets, tools=tools, server=server, threads=threads, disk=disk
            )

        yield work


def handle(
    run: Run,
    *,
    presets: Mapping[str, Preset],
    tools: Tools,
    server: ForkServer,
    threads: int,
    disk: Disk,
) -> Finished:
    """Make, check and store the finished file of one job."""
    job = run.job
    preset = presets.get(job.request.preset)
    if preset is None:
        raise SluiceError(f"there is no preset {job.request.preset!r} any more")
    storage = run.deps.storage
    everything = sources_of(job)
    sources = [source for source in everything if source.kind != SUBTITLE]
    size = sum(source.bytes for source in sources)
    # What a storage elsewhere holds is read through copies on this disk.
    copied = size if storage.outlives_machine else None
    with disk.room(run.scratch, whole=copied, stored=size) as room, ExitStack() as stack:
        paths = [stack.enter_context(storage.local(s.key, run.scratch)) for s in sources]
        watch = _Watch(run, room, size)
        began = time.monotonic()
        cutting = cutting_of(run, sources, watch)
        make = package if preset.ladder else partial(transcode, cutting=cutting)
        result: Result | Package = make(
            paths,
            preset,
            run.scratch,
            tools=tools,
            threads=threads,
            place=Workplace(
                scratch=run.scratch,
                stop=run.stop,
                deadline_s=run.hard_left(),
                stall_s=run.deps.limits.stall_timeout,
                server=server,
                on_start=run.on_child,
                lost_child=run.lost_child,
            ),
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
        gaps=subtitles.gaps(beside),
    )


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
    return Cutting(
        seconds=run.deps.settings.jobs.segment_seconds,
        sources=[(source.key, source.bytes) for source in sources],
        shelf=Shelf(run.deps.storage, run.id, run.scratch, lambda: owner(run)),
        on_segment=lambda: run.deps.failpoints.hit("transcode.mid_segment"),
        on_kept=run.put_away,
        on_join=watch.join,
    )


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
