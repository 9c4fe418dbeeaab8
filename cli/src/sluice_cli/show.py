"""Progress as it happens: bars on a terminal, a line per change otherwise."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from sluice_cli.words import clean, figures_of, name_of

_DIGITS = re.compile(r"\d+")
#: Percent between two plain lines of the same state.
STEP = 10


class Display(Protocol):
    """Is told the newest word on a job, as often as it comes."""

    def update(self, job: dict[str, Any]) -> None: ...


class PlainLines:
    """One line per change of state and per ten percent: readable in a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said: dict[str, tuple[Any, ...]] = {}

    def update(self, job: dict[str, Any]) -> None:
        step = clean(str(job.get("step") or job["status"]))
        percent = (job.get("progress") or {}).get("percent")
        state = (job["status"], job.get("waiting_for"), _DIGITS.sub("", step))
        tens = None if percent is None else int(percent) // STEP
        before = self._said.get(job["id"])
        if before is not None and before[:3] == state and not _further(before[3], tens):
            return
        self._said[job["id"]] = (*state, tens)
        figures = figures_of(job) if tens is not None and "%" in step else ""
        self._stream.write(f"[{name_of(job)}] {step}{f' ({figures})' if figures else ''}\n")
        self._stream.flush()


def _further(before: int | None, now: int | None) -> bool:
    return now is not None and (before is None or now > before)


class _Bars:
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def update(self, job: dict[str, Any]) -> None:
        figures = job.get("progress") or {}
        percent = 100.0 if job["status"] == "SUCCESS" else figures.get("percent")
        fields = {
            "name": name_of(job),
            "step": clean(str(job.get("step") or job["status"])),
            "figures": figures_of(job) if job["status"] == "DOWNLOADING" else "",
        }
        if job["id"] not in self._tasks:
            self._tasks[job["id"]] = self._progress.add_task("", total=None, **fields)
        # Without a known end the bar pulses.
        known = {"total": None} if percent is None else {"total": 100, "completed": percent}
        self._progress.update(self._tasks[job["id"]], **known, **fields)


@contextmanager
def display(stream: TextIO = sys.stderr) -> Iterator[Display]:
    """What suits the stream."""
    if not stream.isatty():
        yield PlainLines(stream)
        return
    # rich takes 50 ms to import and is of use on terminals only.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[step]}", markup=False),
        TextColumn("{task.fields[figures]}", markup=False, style="dim"),
    )
    with Progress(*columns, console=Console(file=stream)) as progress:
        yield _Bars(progress)
