"""Source files become the finished media file: probe, plan, run, verify."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import EndReason, error_for
from sluice_transcoder.children import Workplace, convert, last_time, probe
from sluice_transcoder.command import build_command
from sluice_transcoder.encode import Job
from sluice_transcoder.gaps import Lacking
from sluice_transcoder.plan import Action, Plan, make_plan
from sluice_transcoder.progress import EncodeProgress, ProgressReader
from sluice_transcoder.segments import encode_in_segments
from sluice_transcoder.verify import check_result, check_source, check_tail, needs_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sluice_core.domain.presets import Preset
    from sluice_transcoder.probe import Probe
    from sluice_transcoder.segments import Cutting
    from sluice_transcoder.tools import Tools

#: Two files on different file systems, a file system without links, too many links of one file.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})

_COPY_CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFile:
    """One file for people.

    Attributes:
        path: where it lies now.
        kind: as `Artifact.kind`.
        content_type: for HTTP.
        extension: of the name that people see, without a dot.
        name: that name, where other files hold links to it; None takes the media's title.

    """

    path: Path
    kind: str
    content_type: str
    extension: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The finished file, synced to disk.

    Attributes:
        path: under the folder that was asked for; a hard link of the source when nothing was done.
        probe: what is in it.
        kind: `video` or `audio`.
        content_type: for HTTP.
        extension: of the name that people see, without a dot.
        action: what it took.
        share: how much of it this run encoded, 0 to 1; the rest is from segments of earlier runs.

    """

    path: Path
    probe: Probe
    kind: str
    content_type: str
    extension: str
    action: Action
    share: float = 1.0

    @property
    def duration(self) -> float | None:
        return self.probe.duration

    @property
    def files(self) -> tuple[MadeFile, ...]:
        return (
            MadeFile(
                path=self.path,
                kind=self.kind,
                content_type=self.content_type,
                extension=self.extension,
            ),
        )


def transcode(
    sources: Sequence[Path],
    preset: Preset,
    out_dir: Path,
    *,
    tools: Tools,
    threads: int,
    place: Workplace,
    cutting: Cutting | None = None,
    lacking: Sequence[Lacking] = (),
    on_plan: Callable[[Plan], None] = lambda _plan: None,
    on_progress: Callable[[EncodeProgress], None] = lambda _progress: None,
) -> Result:
    """Make `out_dir/result.<extension>` of the sources.

    Nothing stands under that name before it is whole, checked and synced; what a failed run wrote
    is deleted.

    Args:
        sources: local files, pictures and sound in one or in two; only read.
        preset: what is wanted.
        out_dir: an existing folder of this run alone.
        tools: ffmpeg and ffprobe.
        threads: at most so many for each part of ffmpeg.
        place: where children run and how they are stopped.
        cutting: how a long encode is cut; None never cuts.
        lacking: what is missing of each source, where that is named.
        on_plan: called before anything is written; may raise.
        on_progress: called about twice a second while ffmpeg runs.

    Raises:
        SluiceError: `bad_media`, `incomplete`, `no_media`, `transcode_failed`, `disk_full`,
            `too_large`, `storage_error`, `stalled`, `hard_time_limit`.
        ChildLostError: somebody else ended a child.
        CanceledRunError, StaleRunError, HandBackError: as `place.stop` said.

    """
    probes = probe_sources(sources, tools, place, lacking)
    plan = make_plan(probes, preset, tone_map=tools.tone_map)
    on_plan(plan)
    share = 1.0
    name = f"result.{plan.container.extension}"
    with _temporary(out_dir / f".{name}.part") as part:
        if plan.action is Action.KEEP:
            result = probes[0]
            _check_kept(sources[0], result, tools, place)
            check_result(result, plan)
            _take(sources[0], part, place.stop)
        else:
            job = Job(
                sources=sources,
                probes=probes,
                plan=plan,
                folder=out_dir,
                tools=tools,
                threads=threads,
                place=place,
            )
            result, share = _make(job, part, cutting, on_progress)
        _publish(part, out_dir / name)
    return replace(_result(out_dir / name, result, plan), share=share)


def probe_sources(
    sources: Sequence[Path], tools: Tools, place: Workplace, lacking: Sequence[Lacking] = ()
) -> list[Probe]:
    """What is in them; raises as `children.probe`, and `check_source` for one that is not whole."""
    probes = [
        lack.seen(probe(source, ffprobe=tools.ffprobe, place=place))
        for source, lack in zip(sources, lacking or repeat(Lacking()), strict=False)
    ]
    for found in probes:
        check_source(found)
    return probes


def _make(
    job: Job,
    part: Path,
    cutting: Cutting | None,
    on_progress: Callable[[EncodeProgress], None],
) -> tuple[Probe, float]:
    """Run ffmpeg, once or for each segment; the checked result, and the share made now."""
    if cutting is not None:
        joined = encode_in_segments(job, part, cutting=cutting, on_progress=on_progress)
        if joined is not None:
            return joined.probe, joined.share
    argv = build_command(job.plan, job.sources, part, ffmpeg=job.tools.ffmpeg, threads=job.threads)
    written = convert_told(argv, job.plan.duration, part, job.place, on_progress)
    result = probe(part, ffprobe=job.tools.ffprobe, place=job.place)
    check_result(result, job.plan, written=written)
    return result, 1.0


def _check_kept(source: Path, found: Probe, tools: Tools, place: Workplace) -> None:
    """What nothing reads through otherwise; most containers tell by their structure alone."""
    if needs_reading(found):
        check_tail(found, last_time(source, found, ffprobe=tools.ffprobe, place=place))


def _result(path: Path, found: Probe, plan: Plan) -> Result:
    content_type = plan.container.content_type
    if plan.kind == "audio":
        content_type = content_type.replace("video/", "audio/")
    return Result(
        path=path,
        probe=found,
        kind=plan.kind,
        content_type=content_type,
        extension=plan.container.extension,
        action=plan.action,
    )


def convert_told(
    argv: Sequence[str],
    duration: float | None,
    part: Path,
    place: Workplace,
    on_progress: Callable[[EncodeProgress], None],
    *,
    marker: Callable[[], object] = lambda: None,
) -> float:
    """Run ffmpeg and tell how far it is; how many seconds of media it says to have written.

    `marker` changes when there is progress that the seconds do not show. Raises as `convert`.
    """
    reader = ProgressReader(duration)

    def on_line(line: str) -> None:
        progress = reader.feed(line)
        if progress is not None:
            on_progress(progress)

    convert(
        argv,
        output=part,
        on_line=on_line,
        marker=lambda: (reader.seconds, marker()),
        place=place,
    )
    return reader.seconds


def _take(source: Path, part: Path, stop: Callable[[], str | None]) -> None:
    """The source's bytes under another name: a link, or a copy where links are not possible."""
    with storage_errors():
        try:
            os.link(source, part)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            _copy(source, part, stop)


def _copy(source: Path, part: Path, stop: Callable[[], str | None]) -> None:
    with source.open("rb") as reader, part.open("wb") as writer:
        while chunk := reader.read(_COPY_CHUNK):
            error = error_for(stop() or EndReason.EXITED)
            if error is not None:
                raise error
            writer.write(chunk)


@contextmanager
def _temporary(part: Path) -> Iterator[Path]:
    """A name for half a file, free before and after."""
    part.unlink(missing_ok=True)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Faults of the disk as ours."""
    try:
        yield
    except OSError as exc:
        code = "disk_full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "storage_error"
        raise SluiceError(f"the result can't be stored: {exc.strerror}", code=code) from exc


def _publish(part: Path, final: Path) -> None:
    with storage_errors():
        sync(part)
        part.replace(final)
        sync(final.parent)


def sync(path: Path) -> None:
    """Wait until a file or a folder's names are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
