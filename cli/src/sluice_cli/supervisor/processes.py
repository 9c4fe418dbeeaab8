"""Starting and ending processes such that none outlives this one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
#: Loaded before any fork: the child of a fork must do next to nothing before its exec.
_LIBC = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def start(
    command: tuple[str, ...],
    *,
    death_signal: int = signal.SIGKILL,
    environ: Mapping[str, str] | None = None,
    output: int | None = None,
    keep: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start in a session of its own, so that a terminal's Ctrl-C reaches this process alone.

    On Linux the process gets `death_signal` when the calling thread ends, however it ends: call
    this from the main thread only.

    Args:
        command: program and arguments.
        death_signal: what the process gets when this one is gone.
        environ: instead of this process's own.
        output: descriptor for what it prints and complains; None leaves both as they are here.
        keep: further descriptors that stay open in it.

    Raises:
        OSError: the program can't be started.

    """
    return subprocess.Popen(  # noqa: S603  # commands come from the plan, never from a user
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environ,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=dying_with(os.getpid(), death_signal),  # noqa: PLW1509  # one thread only
    )


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave behind (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def orphans(known: set[int]) -> list[int]:
    """Children of this process that it did not start itself."""
    if not _LINUX:
        return []
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123  # pathlib costs memory
            found = [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel built without this list
        return []
    return [child for child in found if child not in known]


def kill_orphans(known: set[int]) -> int:
    """End and reap them; what they leave becomes an orphan in turn. Returns how many are left."""
    for pid in orphans(known):
        _signal(os.kill, pid, signal.SIGKILL)
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
    return len(orphans(known))


def terminate(pid: int) -> None:
    """Ask the process itself to end; what it started is its own to end."""
    _signal(os.kill, pid, signal.SIGTERM)


def kill_group(pid: int) -> None:
    """End the process and all that stayed in its group, at once."""
    _signal(os.killpg, pid, signal.SIGKILL)


def reason(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _signal(send: Callable[[int, int], None], pid: int, number: int) -> None:
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        # Gone already. macOS says "not permitted" of a group whose members are all zombies.
        return


def dying_with(parent: int, death_signal: int = signal.SIGKILL) -> Callable[[], None] | None:
    """What a new process calls in order to end when `parent` does; None where that is unknown."""
    if _LIBC is None:
        return None
    libc = _LIBC

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        # The parent may have died before the line above; then nobody would tell.
        if os.getppid() != parent:
            os._exit(1)

    return prepare
