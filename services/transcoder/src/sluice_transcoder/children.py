"""ffprobe and ffmpeg as confined children, and their ends as our errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice_core.adapters.layout import read_layout
from sluice_core.domain.errors import ChildLostError, SluiceError
from sluice_core.runtime.children import (
    ChildResult,
    EndReason,
    ExecSpec,
    ForkServer,
    Limits,
    child_environment,
    error_for,
    run,
)
from sluice_transcoder.errors import error_from, is_cut_short, obeyed_signal, opened_nothing
from sluice_transcoder.probe import Probe, parse_probe, probe_command, tail_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: ffprobe answers in milliseconds; a network disk may take its time.
PROBE_TIMEOUT = 60.0

#: How far before the end the search for the last packet begins: beyond any key frame distance.
TAIL_SECONDS = 10.0

#: ffprobe's whole answer in characters: a thousand streams are far less.
_MAX_ANSWER = 4 * 1024 * 1024


_GIB = 1024**3

#: x264 holds some fifty frames; of 8K they are 2.5 GB.
MEMORY = 6 * _GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where and under which orders children run.

    Attributes:
        scratch: an existing folder of this run alone.
        stop: asked every 0.1 s; a word ends the child, see `EndReason`.
        deadline_s: seconds for one child, None for no limit.
        stall_s: seconds without progress until a child is ended.
        server: starts commands some 20 ms sooner.
        on_start: process group and start time of each child, for `is_alive`.
        lost_child: what to raise for a child that somebody else ended.
        limits: memory and file size.
        ends_early: a source without its end is known to be one, and no failure.

    """

    scratch: Path
    stop: Callable[[], str | None] = lambda: None
    deadline_s: float | None = None
    stall_s: float | None = 60.0
    server: ForkServer | None = None
    on_start: Callable[[int, int], None] = lambda _pid, _start_time: None
    lost_child: Callable[[ChildResult], Exception] = lambda result: ChildLostError(result.how)
    limits: Limits = field(default_factory=lambda: Limits(memory=MEMORY))
    ends_early: bool = False

    def spec(self, argv: Sequence[str]) -> ExecSpec:
        """The child of one command."""
        return ExecSpec(
            argv=argv,
            scratch=self.scratch,
            env=child_environment(home=self.scratch, base={}),
            limits=self.limits,
            server=self.server,
        )


def probe(path: Path, *, ffprobe: Path, place: Workplace) -> Probe:
    """What a file holds.

    Raises:
        SluiceError: `bad_media`; `incomplete` when the file is empty or its structure says that
            bytes are missing; `storage_error`, `stalled`.
        ChildLostError: somebody else ended the child.
        CanceledRunError, StaleRunError, HandBackError: as `place.stop` said.

    """
    try:
        size, layout = path.stat().st_size, read_layout(path)
    except OSError as exc:
        raise SluiceError(f"a fetched file can't be read: {exc}", code="storage_error") from exc
    if not size:
        raise SluiceError("nothing arrived: the file is empty", code="incomplete")
    answer = _Answer()
    result = run(
        place.spec(probe_command(ffprobe, path)),
        on_line=answer.add,
        stop=place.stop,
        deadline_s=PROBE_TIMEOUT,
        on_start=place.on_start,
    )
    if result.reason == EndReason.DEADLINE:
        raise SluiceError("looking into the file took too long", code="stalled")
    _raise_for_stop(result, place)
    if not result.ok:
        # Cut files are unreadable too; what is missing explains more than "not playable".
        if not layout.complete:
            raise SluiceError("the end of the media is missing", code="incomplete")
        raise _error(result, probing=True)
    return parse_probe(answer.text(), size=size, layout=layout)


def last_time(
    path: Path, found: Probe, *, ffprobe: Path, place: Workplace, whole: bool = False
) -> float:
    """When the last packet starts that can be read, in seconds; 0 when there is none.

    Cheap where the container can be searched; else as dear as reading the file once, as with
    `whole`, for a file that ends anywhere.

    Raises:
        SluiceError: as `probe`.
        ChildLostError: somebody else ended the child.
        CanceledRunError, StaleRunError, HandBackError: as `place.stop` said.

    """
    latest = [0.0]

    def on_line(line: str) -> None:
        with suppress(ValueError):
            latest[0] = max(latest[0], float(line.strip(", ")))

    start = 0.0 if whole else max(0.0, (found.duration or 0.0) - TAIL_SECONDS)
    read_through(tail_command(ffprobe, path, start=start), on_line=on_line, place=place)
    return latest[0] - (found.start_time or 0.0)


def read_through(argv: Sequence[str], *, on_line: Callable[[str], None], place: Workplace) -> None:
    """Run an ffprobe that may read a whole file, line by line.

    Raises:
        SluiceError: as `probe`.
        ChildLostError: somebody else ended the child.
        CanceledRunError, StaleRunError, HandBackError: as `place.stop` said.

    """
    result = run(
        place.spec(argv),
        on_line=on_line,
        stop=place.stop,
        deadline_s=place.deadline_s,
        stall_s=PROBE_TIMEOUT,
        on_start=place.on_start,
    )
    _raise_for_stop(result, place)
    if not result.ok:
        raise _error(result, probing=True)


def convert(
    argv: Sequence[str],
    *,
    output: Path,
    on_line: Callable[[str], None],
    marker: Callable[[], object],
    place: Workplace,
) -> None:
    """Run ffmpeg to its good end.

    Args:
        argv: the whole command line.
        output: the file that it writes; each write is progress, also after the last frame.
        on_line: one line of `-progress`.
        marker: what else changes with progress.
        place: where and under which orders.

    Raises:
        SluiceError: see `errors.error_from`; `hard_time_limit`, `stalled`.
        ChildLostError: somebody else ended the child.
        CanceledRunError, StaleRunError, HandBackError: as `place.stop` said.

    """

    def once() -> ChildResult:
        result = run(
            place.spec(argv),
            on_line=on_line,
            stop=place.stop,
            deadline_s=place.deadline_s,
            stall_s=place.stall_s,
            marker=lambda: (marker(), _written_at(output)),
            on_start=place.on_start,
        )
        _raise_for_stop(result, place)
        return result

    result = once()
    if not result.ok and opened_nothing(result.stderr_tail):
        # So it also ends after somebody's signal, if that comes while it opens its input: with the
        # words and the status of a file that is no media. What is none is none again, at once.
        result = once()
    if not result.ok:
        raise _error(result)
    if is_cut_short(result.stderr_tail) and not place.ends_early:
        raise SluiceError("the media ends too early", code="incomplete")


class _Answer:
    """Collects stdout up to a cap; what is beyond makes the JSON unreadable, so `bad_media`."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left = _MAX_ANSWER

    def add(self, line: str) -> None:
        self._left -= len(line)
        if self._left >= 0:
            self._lines.append(line)

    def text(self) -> str:
        return "\n".join(self._lines)


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _error(result: ChildResult, *, probing: bool = False) -> SluiceError:
    return error_from(
        exit_code=result.exit_code,
        signal=result.signal,
        stderr=result.stderr_tail,
        probing=probing,
    )


def _raise_for_stop(result: ChildResult, place: Workplace) -> None:
    error = error_for(result.reason)
    if error is not None:
        raise error
    if result.was_lost or obeyed_signal(result.exit_code, result.stderr_tail):
        raise place.lost_child(result)
