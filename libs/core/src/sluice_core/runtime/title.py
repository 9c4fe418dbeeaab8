"""What `ps` and `top` show of a process that was forked and not started by a command of its own."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

_PR_SET_NAME = 15
#: Places of `arg_start` and `arg_end` in /proc/self/stat, counted after the command's name.
_ARG_START, _ARG_END = 45, 46


def show(command: str, *, name: str) -> None:
    """Show `command` in place of the command line, as far as that one was long (Linux).

    The kernel shows the memory in which it once put the arguments. It takes the text up to the
    first zero as the whole line when the last byte of that place has been overwritten.

    Args:
        command: the new command line; cut where the place ends.
        name: what `top` shows, 15 bytes.

    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    # A sandbox without /proc: the process then keeps the line of the one it was forked from.
    with contextlib.suppress(OSError, IndexError, ValueError):
        _overwrite(command)


def _overwrite(command: str) -> None:
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    text = command.encode()[: end - start - 2]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    ctypes.memset(end - 1, 1, 1)
