"""What a child does to itself before it touches untrusted input.

Imported by the fork server, and run as a script (`python -I -S confine.py …`) in front of a command
such as ffmpeg: the script confines itself and becomes the command. It is on the way of every
command, so it imports as little as it can.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

#: How the command line spells "no limit".
NONE = "-"

#: Exit status of a child that could not confine itself, or whose command could not be started.
EX_SETUP = 70

#: The kernel's out-of-memory killer takes a child long before the worker that watches it.
_OOM_SCORE = b"700"


def has_parent_death_signal() -> bool:
    return sys.platform == "linux"


def die_with_parent(parent: int, life_fd: int, *, by_signal: bool) -> None:
    """End this process, by force, when its parent ends.

    Args:
        parent: the process id that the parent has; ends at once when it is gone already.
        life_fd: read end of a pipe whose write end only the parent holds; used without
            `by_signal`, -1 otherwise.
        by_signal: Linux's parent-death signal, which an exec keeps and a fork loses. Without it a
            watcher process in this process group waits for the pipe to close.

    """
    if by_signal:
        set_parent_death_signal()
        _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    else:
        _start_watcher(life_fd)
    if os.getppid() != parent:
        os._exit(EX_SETUP)


def set_parent_death_signal() -> None:
    """Ask the kernel to end this process, by force, with the thread that started it."""
    if _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _start_watcher(life_fd: int) -> None:
    if os.fork() != 0:
        os.close(life_fd)
        return
    # It holds nothing else, neither pipes (the runner waits for their end) nor the lock.
    for low, high in ((0, life_fd), (life_fd + 1, 4096)):
        os.closerange(low, high)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.read(life_fd, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def apply_limits(
    memory: int | None, file_size: int | None, open_files: int | None, processes: int | None
) -> None:
    """Set resource limits, in bytes and counts; None leaves a limit as it is.

    Memory is RLIMIT_DATA, what a process can write to: RLIMIT_AS would count the terabytes of
    address space that a JavaScript engine reserves and never touches.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, memory)
    _limit(resource.RLIMIT_FSIZE, file_size)
    _limit(resource.RLIMIT_NOFILE, open_files)
    # Counted by the kernel over all processes of the user, and not at all for root.
    _limit(resource.RLIMIT_NPROC, processes)
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:  # noqa: PTH123  # pathlib is slow to import
            file.write(_OOM_SCORE)
    except OSError:
        # No /proc, or a sandbox without this file: the kernel then chooses by itself.
        return


def _limit(which: int, value: int | None) -> None:
    if value is None:
        return
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def default_signals() -> None:
    """Give the command the signals that Python ignores, and nothing blocked."""
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def wrap(argv: list[str], parent: int, life_fd: int, limits: tuple[int | None, ...]) -> list[str]:
    """The command line that confines itself and then becomes `argv`."""
    numbers = [NONE if value is None else str(value) for value in limits]
    return [sys.executable, "-I", "-S", __file__, str(parent), str(life_fd), *numbers, *argv]


def main(argv: list[str]) -> None:
    parent, life_fd = int(argv[1]), int(argv[2])
    limits = [None if text == NONE else int(text) for text in argv[3:7]]
    command = argv[7:]
    die_with_parent(parent, life_fd, by_signal=has_parent_death_signal())
    apply_limits(*limits)
    default_signals()
    try:
        os.execvp(command[0], command)  # noqa: S606  # becoming the command is the purpose
    except OSError as exc:
        sys.stderr.write(f"{command[0]}: {exc.strerror}\n")
        sys.exit(EX_SETUP)


if __name__ == "__main__":
    main(sys.argv)
