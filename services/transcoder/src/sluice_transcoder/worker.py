"""The transcode stage: sources in storage become the finished file, and the job a success."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.job import Artifact, Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.names import file_name
from sluice_core.domain.paths import final_key
from sluice_core.domain.plan import Source
from sluice_core.domain.presets import Preset, load_presets
from sluice_core.runtime import worker
from sluice_core.runtime.children import ForkServer, Preforked, child_environment
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Finished, Run
from sluice_core.runtime.stage import Handler
from sluice_transcoder.children import Workplace
from sluice_transcoder.plan import Action
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.tools import Tools, inspect_tools
from sluice_transcoder.transcode import Result, transcode

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
    threads = max(1, (os.cpu_count() or 1) // deps.limits.concurrency)
    with ForkServer(module=None, env=env, cwd=folder, preforked=preforked) as server:
        yield lambda run: handle(run, presets=presets, tools=tools, server=server, threads=threads)


def handle(
    run: Run, *, presets: Mapping[str, Preset], tools: Tools, server: ForkServer, threads: int
) -> Finished:
    """Make, check and store the finished file of one job."""
    job = run.job
    preset = presets.get(job.request.preset)
    if preset is None:
        raise SluiceError(f"there is no preset {job.request.preset!r} any more")
    storage = run.deps.storage
    with ExitStack() as stack:
        paths = [
            stack.enter_context(storage.local(source.key, run.scratch))
            for source in sources_of(job)
        ]
        began = time.monotonic()
        result = transcode(
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
            on_progress=lambda p: run.progress(to_progress(p)),
        )
    if result.action is Action.ENCODE and result.probe.duration:
        run.observe("transcode_speed_ratio", result.probe.duration / (time.monotonic() - began))
    run.check()
    artifact = store(run, result)
    return Finished([artifact], fields={"duration": result.probe.duration or job.duration})


def sources_of(job: Job) -> list[Source]:
    """What the downloader left.

    Raises:
        SluiceError: the row has none; a job never comes here without.

    """
    if not job.sources:
        raise SluiceError("the fetched files of this job are gone")
    return [Source.from_json(source) for source in job.sources]


def store(run: Run, result: Result) -> Artifact:
    """Put the finished file under its final key, which no row points at yet."""
    name = file_name(run.job.title, result.extension, fallback=f"sluice-{run.job.id}")
    key = final_key(run.id, name)
    digest, size = sha256_of(result.path)
    run.deps.storage.put(key, result.path)
    return Artifact(
        name=name,
        kind=result.kind,
        key=key,
        bytes=size,
        sha256=digest,
        content_type=result.content_type,
    )


def sha256_of(path: Path) -> tuple[str, int]:
    """Hex digest and bytes of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()


def to_progress(progress: EncodeProgress) -> Progress:
    """What people are shown of an encode."""
    return Progress(
        percent=progress.percent, bytes=progress.bytes, eta_seconds=progress.eta_seconds
    )
