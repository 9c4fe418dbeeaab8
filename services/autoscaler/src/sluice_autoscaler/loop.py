"""One turn of everything, and what is said when a part of it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
import structlog

from sluice_autoscaler.cluster import ClusterError, Fault
from sluice_autoscaler.elector import KubernetesElector
from sluice_autoscaler.pool import Pool
from sluice_autoscaler.reading import Reading, take_reading
from sluice_core.adapters.metrics import AutoscalerMetrics
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.runtime.broker import SluiceBroker

log = structlog.get_logger(__name__)

#: Seconds without a finished turn after which the process is stuck. Longer than all calls of one
#: turn to a silent cluster take, since that is no fault of this process.
STUCK_AFTER = 120.0
#: Longest time that a cluster may ask to be left alone, seconds.
MAX_RETRY_AFTER = 60.0


@dataclass(frozen=True, slots=True)
class Stores:
    """Where demand is read."""

    broker: SluiceBroker
    engine: sa.Engine
    clock: Callable[[], float]


class Loop:
    """Leads or watches, reads once, and gives every pool its turn."""

    def __init__(
        self,
        *,
        elector: KubernetesElector,
        stores: Stores,
        pools: Sequence[Pool],
        metrics: AutoscalerMetrics,
    ) -> None:
        self._elector = elector
        self._stores = stores
        self._pools = pools
        self._queues = sorted({queue for pool in pools for queue in pool.config.queues})
        self._metrics = metrics
        #: What -> its trouble, as told last.
        self._troubles: dict[str, str] = {}
        self._not_before: dict[str, float] = {}
        self._finished_at = time.monotonic()

    def turn(self) -> None:
        """Do what is due; raises nothing that the next turn may mend."""
        if self._leads():
            reading = self._read()
            for pool in self._pools:
                if self._elector.leads(time.monotonic()):
                    self._turn_pool(pool, reading)
        self._finished_at = time.monotonic()

    def stop(self) -> None:
        """Let another one lead; marks stay, and are taken over by it."""
        self._elector.give_back()

    def stuck(self) -> str:
        """Why this process can't do its work any more; empty while it can."""
        silent = time.monotonic() - self._finished_at
        return f"no turn was finished for {silent:.0f} s" if silent > STUCK_AFTER else ""

    def _leads(self) -> bool:
        now = time.monotonic()
        if now >= self._not_before.get("lease", 0.0):
            self._guarded("lease", lambda: self._elector.turn(now))
        leads = self._elector.leads(time.monotonic())
        self._metrics.leads(leading=leads)
        if not leads:
            # The next lead starts from what it then finds.
            for pool in self._pools:
                pool.reset()
        return leads

    def _read(self) -> Reading | None:
        stores = self._stores
        try:
            reading = take_reading(stores.broker, stores.engine, self._queues, now=stores.clock())
        except (BrokerAwayError, StoreAwayError) as exc:
            self._metrics.read_failed()
            self._trouble("reading", str(exc) or type(exc).__name__, "reading_failed")
            return None
        self._fine("reading")
        return reading

    def _turn_pool(self, pool: Pool, reading: Reading | None) -> None:
        now = time.monotonic()
        if now >= self._not_before.get(pool.name, 0.0):
            self._guarded(pool.name, lambda: pool.turn(reading, now))

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except ClusterError as exc:
            self._metrics.apply_failed(exc.fault.value)
            if exc.fault is Fault.THROTTLED:
                wait = min(exc.retry_after or 1.0, MAX_RETRY_AFTER)
                self._not_before[what] = time.monotonic() + wait
            self._trouble(what, f"{exc.fault.value}: {exc}", "cluster_failed")
        except (BrokerAwayError, StoreAwayError) as exc:
            self._metrics.apply_failed("store_away")
            self._trouble(what, f"store_away: {exc}", "cluster_failed")
        except Exception as exc:
            # One pool's surprise must not end the scaling of all others.
            self._metrics.apply_failed("internal")
            if self._troubles.get(what) != repr(exc):
                log.exception("turn_failed", of=what)
            self._troubles[what] = repr(exc)
        else:
            self._fine(what)

    def _trouble(self, what: str, words: str, event: str) -> None:
        """One line when a trouble begins or becomes another one."""
        kind = words.partition(":")[0]
        if self._troubles.get(what) != kind:
            log.warning(event, of=what, reason=words)
        self._troubles[what] = kind

    def _fine(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            log.info("well_again", of=what)
