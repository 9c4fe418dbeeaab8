"""A child and all that it has started: one process group, named by the child's process id."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def kill_group(pid: int, signum: int = signal.SIGKILL) -> None:
    """Signal a process group; one that is gone is no failure."""
    # PermissionError is macOS's word for a group of nothing but zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)
