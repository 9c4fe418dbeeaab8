"""The scheduler process: a few repeated tasks, and the worker that settles parents."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import structlog

from sluice_core.adapters.db import collections
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import BrokerAwayError, SluiceError, StoreAwayError
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import process
from sluice_core.runtime.broker import StageWorker, declare_actor
from sluice_core.runtime.counting import count
from sluice_core.runtime.deps import StageDeps, make_deps, open_deps, open_waker
from sluice_core.runtime.probes import Probes
from sluice_core.runtime.process import EXIT_OK, EXIT_UNHEALTHY
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import tell
from sluice_core.runtime.signals import EndSignals
from sluice_core.runtime.worker import keep_letter
from sluice_scheduler import counts, reconcile, relay, sweep
from sluice_scheduler.beats import BeatWatch
from sluice_scheduler.notify import notifier
from sluice_scheduler.pauses import PauseMirror
from sluice_scheduler.scheduling import Scheduling

log = structlog.get_logger(__name__)

#: Threads that settle parents.
SETTLERS = 2
#: Seconds that each worker is given at the end for what it has begun.
DRAIN_GRACE = 5.0
#: Longest wait between two looks at what is due, seconds.
TICK = 0.5


@dataclass(slots=True)
class Task:
    """Something repeated; a failure is logged and the next turn tries again."""

    name: str
    every: float
    run: Callable[[], None]
    due: float = 0.0
    away: bool = field(default=False, init=False)

    def turn(self, now: float) -> None:
        """Run when due."""
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


def main() -> None:
    """Run until SIGTERM or SIGINT; exits the process."""
    sys.exit(process.run("scheduler", serve))


def serve(loaded: Settings) -> int:
    """Run until told to stop; returns the exit status."""
    told = EndSignals()
    told.listen()
    with ExitStack() as stack:
        probes = stack.enter_context(closing(Probes(loaded)))
        deps = open_deps(Actor.SETTLE, loaded, stack)
        notify_deps = make_deps(
            Actor.NOTIFY,
            loaded,
            stack,
            engine=deps.engine,
            storage=deps.storage,
            signals=deps.signals,
        )
        pauses = PauseMirror(deps)
        pauses.first_turn()
        workers = [settler(deps, paused=pauses.known), notifier(notify_deps, paused=pauses.known)]
        scheduling = Scheduling(deps)
        scheduling.start()
        for stage, worker in zip((Actor.SETTLE, Actor.NOTIFY), workers, strict=True):
            probes.watch(stage, worker)
            worker.start()
        probes.check(lambda: "" if scheduling.is_alive() else "the thread of built-in tasks died")
        probes.started()
        log.info("scheduler_ready")
        status = _loop(Duties(deps, scheduling, pauses).tasks(), probes, told)
        scheduling.stop()
        for worker in workers:
            worker.drain(DRAIN_GRACE)
            worker.stop()
        return status


def _loop(tasks: list[Task], probes: Probes, told: EndSignals) -> int:
    while not told.count:
        for task in tasks:
            task.turn(time.monotonic())
        reason = probes.unlive()
        if reason:
            log.error("worker_unhealthy", reason=reason)
            return EXIT_UNHEALTHY
        told.wait(TICK)
    return EXIT_OK


def settler(deps: StageDeps, *, paused: Callable[[], frozenset[str]] = frozenset) -> StageWorker:
    """The worker of the `settle` queues; `paused`: queues of which it takes nothing."""

    def settle(job: str, epoch: int, traceparent: str | None = None) -> None:
        del epoch, traceparent
        settle_parent(deps, job)

    declare_actor(deps.broker, Actor.SETTLE, settle)
    return StageWorker(
        deps.broker,
        Actor.SETTLE,
        threads=SETTLERS,
        waker=open_waker(deps),
        on_dead_letter=lambda raw, reason: keep_letter(deps, raw, reason),
        paused=paused,
        drain_event=deps.drain,
        worker_id=deps.worker_id,
    )


def settle_parent(deps: StageDeps, parent_id: str) -> None:
    """End a collection if all of its children have."""
    now = deps.clock()
    with write(deps.engine) as connection:
        job = collections.settle(
            connection,
            parent_id,
            expires_at=now + deps.settings.jobs.retention_files,
            sweep_at=now,
            now=now,
            before_write=lambda: deps.failpoints.hit("settle.counted"),
        )
    if job is not None:
        log.info("parent_settled", job=parent_id, status=job.status.value)
        tell(deps, job, "job")


class Duties:
    """Everything that is repeated; each duty is harmless when others do it too."""

    def __init__(self, deps: StageDeps, scheduling: Scheduling, pauses: PauseMirror) -> None:
        self._deps = deps
        self._pauses = pauses
        self._scheduling = scheduling
        self._watch = BeatWatch()
        self._emptied = relay.EmptiedRedis(deps.signals, deps.broker.client)

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
        if self._emptied.check():
            # Or what comes back would be fetched although it is paused.
            self._pauses.turn()
            republished = self._republish(published_before=self._deps.clock())
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
