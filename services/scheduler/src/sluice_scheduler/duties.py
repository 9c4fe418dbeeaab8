"""What the scheduler does again and again, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from sluice_core.domain.beats import BeatWatch
from sluice_core.domain.errors import BrokerAwayError, SluiceError, StoreAwayError
from sluice_core.runtime.counting import count
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.publisher import publish_now
from sluice_scheduler import counts, reconcile, relay, sweep
from sluice_scheduler.pauses import PauseMirror
from sluice_scheduler.scheduling import Scheduling

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Task:
    """Something repeated; a failure is logged and the next turn tries again."""

    name: str
    #: Seconds.
    every: float
    run: Callable[[], None]
    due: float = 0.0
    away: bool = field(default=False, init=False)

    def turn(self, now: float) -> None:
        """Run when due; `now` in own monotonic seconds."""
        if now < self.due:
            return
        self.due = now + self.every
        try:
            self.run()
        except (StoreAwayError, BrokerAwayError) as exc:
            if not self.away:
                log.warning("task_waits", task=self.name, reason=str(exc))
            self.away = True
        except Exception:
            log.exception("task_failed", task=self.name)
        else:
            self.away = False


class Duties:
    """Everything that is repeated; each duty is harmless when others do it too."""

    def __init__(self, deps: StageDeps, scheduling: Scheduling, pauses: PauseMirror) -> None:
        self._deps = deps
        self._pauses = pauses
        self._scheduling = scheduling
        self._watch = BeatWatch()
        self._emptied = relay.EmptiedRedis(deps.signals, deps.broker.client)
        self._has_looked = False

    def tasks(self) -> list[Task]:
        """Most urgent first; seconds between two turns."""
        return [
            Task("relay", 0.5, self.publish_due),
            Task("pauses", 2.0, self._pauses.turn),
            Task("refill", 1.0, self.refill),
            Task("lost_workers", 2.0, self.find_lost_workers),
            Task("settle_forgotten", 2.0, self.settle_forgotten),
            Task("sweep", 2.0, self.sweep),
            Task("unfinished_puts", 30.0, self.drop_unfinished),
            Task("counts", 1.0, lambda: counts.add_up(self._deps.engine)),
            Task("dead_consumers", 5.0, self.return_messages),
            Task("orphans", 10.0, self.find_orphans),
            Task("lost_messages", 15.0, self.find_lost_messages),
            Task("lead", self._scheduling.lead_every, self._scheduling.lead),
            Task("schedules", 1.0, self._scheduling.fire),
        ]

    def publish_due(self) -> None:
        deps = self._deps
        while relay.relay(deps.engine, deps.broker, now=deps.clock()) == relay.BATCH:
            pass

    def refill(self) -> None:
        is_empty = self._emptied.check()
        is_start, self._has_looked = not self._has_looked, True
        if not is_empty:
            return
        # Or what comes back would be fetched although it is paused.
        self._pauses.turn()
        republished = self._republish(published_before=self._deps.clock())
        if is_start:
            # As it should be: the Redis of one machine keeps nothing over an end.
            log.info("redis_filled", published=republished)
            return
        log.warning("redis_was_empty", republished=republished)
        self._reconciled("emptied_redis")

    def find_lost_messages(self) -> None:
        lost = self._republish(published_before=self._deps.clock() - relay.LOST_AFTER)
        if lost:
            log.warning("messages_lost", republished=lost)
            self._reconciled("lost_message", lost)

    def _republish(self, published_before: float) -> int:
        deps = self._deps
        return relay.republish_lost(
            deps.engine, deps.broker, published_before=published_before, now=deps.clock()
        )

    def find_lost_workers(self) -> None:
        deps = self._deps
        try:
            rows = reconcile.lost_workers(
                deps.engine,
                self._watch,
                monotonic=time.monotonic(),
                now=deps.clock(),
                keep_partial=deps.settings.jobs.retention_partial,
                lone_losses=max(s.lone_losses for s in deps.settings.stages.values()),
            )
        except StoreAwayError:
            self._watch.failed()
            raise
        publish_now(deps.broker, rows, now=deps.clock())

    def find_orphans(self) -> None:
        now = self._deps.clock()
        rows = reconcile.orphans(self._deps.engine, now=now)
        publish_now(self._deps.broker, rows, now=now)

    def settle_forgotten(self) -> None:
        now = self._deps.clock()
        keep = self._deps.settings.jobs.retention_files
        reconcile.unsettled(self._deps.engine, expires_at=now + keep, now=now)

    def return_messages(self) -> None:
        returned = self._deps.broker.requeue_dead()
        if returned:
            log.warning("messages_of_dead_workers", returned=returned)
            self._reconciled("dead_consumer", returned)

    def _reconciled(self, what: str, number: int = 1) -> None:
        count(self._deps.engine, "reconciled_total", number, what=what)

    def sweep(self) -> None:
        deps = self._deps
        sweep.ended_jobs(deps.engine, deps.storage, now=deps.clock())

    def drop_unfinished(self) -> None:
        deps = self._deps
        try:
            sweep.unfinished_puts(deps.engine, deps.storage, now=deps.clock())
        except SluiceError as exc:
            log.warning("sweep_postponed", reason=exc.message)
