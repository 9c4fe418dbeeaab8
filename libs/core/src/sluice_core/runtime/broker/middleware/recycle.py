"""A worker that retires after so much work, so that nothing in it can grow for ever."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self

import dramatiq

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Broker
    from dramatiq.broker import MessageProxy

    from sluice_core.adapters.settings import StageSettings

_MIB = 1024 * 1024


class Recycle(dramatiq.Middleware):
    """Says when the process has done enough; whoever runs it then drains it.

    Args:
        max_tasks: messages; 0 is no limit.
        max_memory: resident bytes of this process; 0 is no limit.
        wake: called once, from a worker thread, when it is time.
        memory: how much it is now.

    """

    def __init__(
        self,
        *,
        max_tasks: int = 0,
        max_memory: int = 0,
        wake: Callable[[], None] = lambda: None,
        memory: Callable[[], int] | None = None,
    ) -> None:
        self._max_tasks = max_tasks
        self._max_memory = max_memory
        self._wake = wake
        self._memory = memory or resident_memory
        self._lock = Lock()
        self._done = 0
        #: `tasks` or `memory`, once it is time.
        self.reason: str | None = None

    @classmethod
    def of(cls, limits: StageSettings, *, wake: Callable[[], None]) -> Self:
        """As a stage's settings say."""
        return cls(max_tasks=limits.max_tasks, max_memory=limits.max_memory_mib * _MIB, wake=wake)

    def after_process_message(
        self,
        broker: Broker,  # noqa: ARG002  # hook
        message: MessageProxy,  # noqa: ARG002
        *,
        result: object = None,  # noqa: ARG002
        exception: BaseException | None = None,  # noqa: ARG002
    ) -> None:
        with self._lock:
            self._done += 1
            if self.reason is not None:
                return
            if self._max_tasks and self._done >= self._max_tasks:
                self.reason = "tasks"
            elif self._max_memory and self._memory() > self._max_memory:
                self.reason = "memory"
            else:
                return
        self._wake()


def resident_memory() -> int:
    """Bytes of this process that are in memory; elsewhere than on Linux, the most it ever had."""
    if sys.platform == "linux":
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
