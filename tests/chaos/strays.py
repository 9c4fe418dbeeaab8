"""Processes that an idle system has no use for: children of runs that are over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil

from sluice_testing.system import PARTS, System

#: Parts whose children are one server of media children, and below it one process a run.
MEDIA = ("parser", "downloader", "transcoder")
#: What starts the parts, see ADR 6.
NURSERY = "sluice_cli.local.nursery"


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
