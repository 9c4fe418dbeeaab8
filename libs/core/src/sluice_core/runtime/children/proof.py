"""Proof that an earlier writer is gone: its lock is free and its process group is dead.

A process id alone proves nothing, since ids are given out again; with the start time it names one
process of this machine since its boot. The lock also speaks for machines that share the folder.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZX")


class _Stat(NamedTuple):
    state: str
    group: int
    start_time: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], group=int(fields[2]), start_time=int(fields[19]))


def start_time(pid: int) -> int:
    """When a process started: clock ticks since boot on Linux, elsewhere seconds since 1970.

    Raises:
        ProcessLookupError: there is no such process.

    """
    if sys.platform == "linux":
        found = _stat(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return found.start_time
    return _start_time_by_ps(pid)


def _start_time_by_ps(pid: int) -> int:
    # The fields of `lstart` are the same on macOS, the BSDs and Linux in the C locale.
    done = subprocess.run(  # noqa: S603  # a fixed program and a number
        ["/bin/ps", "-o", "lstart=", "-p", str(pid)],
        env={"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )
    text = done.stdout.strip()
    if not text:
        raise ProcessLookupError(pid)
    return int(time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y")))


def is_alive(pid: int, started: int) -> bool:
    """Whether the process group led by `pid`, started at `started`, still has a living member.

    While a group has members its id is not given to a new process; so another start time behind
    the id means that the whole group is gone. A dead leader that nobody waited for counts as gone.
    """
    try:
        same = start_time(pid) == started
    except ProcessLookupError:
        return _group_has_members(pid)
    if not same:
        return False
    if sys.platform != "linux":
        return True
    found = _stat(pid)
    return (found is not None and found.state not in _DEAD_STATES) or _group_has_living(pid)


def _group_has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return sys.platform != "linux" or _group_has_living(group)


def _group_has_living(group: int) -> bool:
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    stats = (_stat(pid) for pid in pids)
    return any(s is not None and s.group == group and s.state not in _DEAD_STATES for s in stats)


def take_lock(path: Path, wait_s: float = 0.5) -> int:
    """Take the writer's lock; return its descriptor, which holds while any copy of it is open.

    Waits for `wait_s` seconds: `lock_is_held` takes a lock too, for a moment.

    Raises:
        BlockingIOError: another writer is alive.

    """
    give_up = time.monotonic() + wait_s
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while not _try_lock(fd, fcntl.LOCK_EX):
        if time.monotonic() >= give_up:
            os.close(fd)
            raise BlockingIOError(f"another process writes in {path.parent}")
        time.sleep(0.02)
    return fd


def lock_is_held(path: Path) -> bool:
    """Whether a process, here or on a machine that shares the folder, holds the writer's lock."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
