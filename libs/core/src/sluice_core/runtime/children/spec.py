"""What to run and within which limits, as plain values."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sluice_core.runtime.children.forkclient import ForkServer

#: The lock file's name in a scratch folder.
LOCK_NAME = ".writer.lock"

_GIB = 1024**3

#: What a process brings upon itself: by its own faults, or by a limit that it was given.
_OWN_DOING = frozenset(
    {
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT),
        *(signal.SIGTRAP, signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGXCPU),
    }
)
#: With this status a child of ours leaves that was asked to end.
_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one child; None leaves one as the worker has it."""

    #: Writable memory in bytes.
    memory: int | None = 2 * _GIB
    #: The largest file that it can write, in bytes.
    file_size: int | None = None
    #: File descriptors.
    open_files: int | None = 512
    #: Processes and threads of the whole user: a brake for fork bombs, not a share.
    processes: int | None = 8192

    def numbers(self) -> tuple[int | None, ...]:
        """In the order that `confine` takes."""
        return (self.memory, self.file_size, self.open_files, self.processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSpec:
    """Call the `main` of the module that a fork server has preloaded."""

    server: ForkServer
    #: JSON; reaches the child through a file without a name, so that its size does not matter.
    request: Mapping[str, object] = field(repr=False)
    #: Working folder, HOME and TMPDIR of the child; must exist.
    scratch: Path
    limits: Limits = field(default_factory=Limits)

    @property
    def lock(self) -> Path:
        return self.scratch / LOCK_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSpec:
    """Run a command, e.g. ffmpeg."""

    argv: Sequence[str]
    #: Working folder of the child; must exist.
    scratch: Path
    #: The whole environment; nothing of the worker's own is added.
    env: Mapping[str, str]
    limits: Limits = field(default_factory=Limits)
    #: Starts the command by a fork of this small process, about 20 ms sooner than without.
    server: ForkServer | None = None

    @property
    def lock(self) -> Path:
        return self.scratch / LOCK_NAME


class EndReason(StrEnum):
    """Why a child ended. `stop` may return any of these, or a word of the caller's own."""

    #: By itself, well or badly; the exit status says which.
    EXITED = "exited"
    CANCELED = "canceled"
    DRAINED = "drained"
    #: Another run owns the job by now.
    STALE = "stale"
    DEADLINE = "deadline"
    #: The run's soft limit: it ends cleanly, and may be tried again.
    SOFT_LIMIT = "soft_time_limit"
    #: The run's hard limit.
    HARD_LIMIT = "hard_time_limit"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended. Exactly one of `exit_code` and `signal` is set."""

    reason: str
    exit_code: int | None
    signal: int | None
    #: The last 8 KiB of its stderr.
    stderr_tail: str
    #: Lines longer than the cap; their content is lost.
    lines_dropped: int = 0

    @property
    def ok(self) -> bool:
        return self.reason == EndReason.EXITED and self.exit_code == 0

    @property
    def how(self) -> str:
        """Its end in two words."""
        if self.signal is None:
            return f"status {self.exit_code}"
        return f"signal {self.signal}"

    @property
    def was_lost(self) -> bool:
        """Whether somebody else ended it: the kernel for want of memory, a person, a fault."""
        if self.reason != EndReason.EXITED:
            return False
        if self.signal is None:
            return self.exit_code == _TERMINATED
        return self.signal not in _OWN_DOING
