"""What a process without an API tells on its METRICS_PORT: metrics, whether it lives, is ready.

Live says whether the process can do its work: all threads there, the keeper moving. A long job, a
paused lane and a store that is away make no process unlive, nor, once it has started, unready: a
Kubernetes that is told so would take busy workers first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from sluice_core.adapters.settings import Settings
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker import StageWorker
from sluice_core.runtime.disk import free_within

if TYPE_CHECKING:
    from sluice_core.adapters.metrics import MetricsPort

log = structlog.get_logger(__name__)

_STARTING = "starting: waits for its stores"


class Probes:
    """Opens the port, if there is one, at once; says what it is told to.

    Args:
        settings: of this process.

    Raises:
        ConfigError: the port can't be had.

    """

    def __init__(self, settings: Settings) -> None:
        self._starting = True
        self._checks: list[Callable[[], str]] = []
        self._port: MetricsPort | None = None
        if not settings.metrics.metrics_port:
            return
        # Who shows no metrics is spared the memory.
        from sluice_core.adapters import metrics  # noqa: PLC0415

        self.metrics = metrics.WorkerMetrics()
        scratch, free = settings.store.scratch_dir, free_within(settings.store.scratch_size)
        self.metrics.scratch_from(lambda: float(free(scratch)))
        self._port = metrics.MetricsPort(
            [self.metrics.registry],
            host=settings.metrics.metrics_host,
            port=settings.metrics.metrics_port,
            live=self.unlive,
            ready=lambda: _STARTING if self._starting else "",
        )
        self._port.start()

    def watch(self, stage: Actor, worker: StageWorker) -> None:
        """Tell of a worker; before it starts, so that its messages are counted from the first."""
        self.check(lambda: worker.healthy().reason)
        if self._port is None:
            return
        from sluice_core.runtime.broker.middleware.counted import Counted  # noqa: PLC0415

        worker.broker.add_middleware(Counted(self.metrics))
        self.metrics.watch(
            stage.value,
            threads=len(worker.threads),
            busy=lambda: min(len(worker.running), len(worker.threads)),
            beat_age=lambda: worker.last_beat_age,
            paused=lambda: worker.is_paused,
        )

    def check(self, reason: Callable[[], str]) -> None:
        """Ask this too whether the process lives: why not, or empty."""
        self._checks.append(reason)

    def started(self) -> None:
        """Everything runs: the process is ready from now on."""
        self._starting = False

    def unlive(self) -> str:
        """Why this process can't do its work; empty while it can, or has not begun."""
        if self._starting:
            return ""
        return next((reason for check in self._checks if (reason := check())), "")

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
