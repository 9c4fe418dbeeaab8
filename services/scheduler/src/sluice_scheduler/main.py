"""The scheduler process: its duties in turn, and the workers that settle parents and call back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import structlog

from sluice_core.adapters.db import collections
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.settings import Settings
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import process
from sluice_core.runtime.broker import StageWorker, declare_actor
from sluice_core.runtime.deps import StageDeps, make_deps, open_deps, open_waker
from sluice_core.runtime.probes import Probes
from sluice_core.runtime.process import EXIT_OK, EXIT_UNHEALTHY
from sluice_core.runtime.run import tell
from sluice_core.runtime.signals import EndSignals
from sluice_core.runtime.worker import keep_letter
from sluice_scheduler.duties import Duties, Task
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
            clock=deps.clock,
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


def _loop(tasks: Sequence[Task], probes: Probes, told: EndSignals) -> int:
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
