"""What to run and within which limits, as plain values."""

from __future__ import annotations

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
    #: JSON; reaches the child through an unlinked file, so that its size does not matter.
    request: Mapping[str, object]
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
