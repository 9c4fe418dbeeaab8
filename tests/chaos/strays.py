"""Processes that should not be there: children of runs that are over, or of who was killed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

from sluice_testing.process import is_alive
from sluice_testing.system import PARTS, System

#: Parts whose children are one server of media children, and below it one process a run.
MEDIA = ("parser", "downloader", "transcoder")
#: What starts the parts, see ADR 6.
NURSERY = "sluice_cli.local.nursery"
#: Seconds that media children may outlive who started them, on a machine with much else to do.
OUTLIVE = 30.0


class Orphans:
    """Media children of killed processes: each must be gone soon."""

    def __init__(self) -> None:
        #: (monotonic time from which it counts, process).
        self._watched: list[tuple[float, psutil.Process]] = []
        #: Those that were still there.
        self.outlived: list[str] = []

    def kill(self, process: psutil.Process) -> None:
        """Kill -9; harmless when it is gone."""
        with suppress(psutil.NoSuchProcess):
            children = (
                [] if _name(process) in ("api", NURSERY) else process.children(recursive=True)
            )
            process.kill()
            due = time.monotonic() + OUTLIVE
            self._watched += [(due, child) for child in children]

    def look(self) -> None:
        """Note whose time is over; to be called all the time."""
        now = time.monotonic()
        for _, process in [entry for entry in self._watched if entry[0] <= now]:
            if is_alive(process):
                self.outlived.append(_told(process))
        self._watched = [entry for entry in self._watched if entry[0] > now]


def still_there(processes: Iterable[psutil.Process], *, seconds: float) -> list[str]:
    """Those that do not end in so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := [one for one in processes if is_alive(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [_told(one) for one in left]


def strays(system: System) -> list[str]:
    """What is there beside the parts and their servers of media children."""
    found = []
    roots = set()
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(system.pid).children():
            name = _name(process)
            if name is None or name in roots:
                found.append(_told(process))
            else:
                roots.add(name)
                found += map(_told, _too_many(name, process))
    return found


def _name(process: psutil.Process) -> str | None:
    """The part that it is."""
    words = process.cmdline()
    if NURSERY in words:
        return NURSERY
    return next((name for name, word in PARTS.items() if any(word in w for w in words)), None)


def _too_many(name: str, part: psutil.Process) -> Iterator[psutil.Process]:
    if name not in MEDIA:
        return
    servers = part.children()
    yield from servers[1:]
    for server in servers[:1]:
        yield from server.children(recursive=True)


def _told(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"process {process.pid}: {' '.join(process.cmdline())[-80:]}"
    return f"process {process.pid}"
