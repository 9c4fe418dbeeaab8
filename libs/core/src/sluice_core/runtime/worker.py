"""The life of a worker process: check, consume, drain, end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from threading import Thread

import structlog
from dramatiq.middleware import CurrentMessage, TimeLimit
from structlog.contextvars import bind_contextvars

from sluice_core.adapters import tracing
from sluice_core.adapters.db import dead_letters, engine
from sluice_core.adapters.db.claims import Message
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import alone, process, scratch
from sluice_core.runtime.broker import StageWorker, declare_actor
from sluice_core.runtime.broker.middleware.recycle import Recycle
from sluice_core.runtime.counting import count
from sluice_core.runtime.deps import StageDeps, open_deps, open_waker
from sluice_core.runtime.helping import Helped, run_help
from sluice_core.runtime.probes import Probes
from sluice_core.runtime.process import EXIT_OK, EXIT_UNHEALTHY
from sluice_core.runtime.signals import EndSignals
from sluice_core.runtime.stage import Handler, run_stage

log = structlog.get_logger(__name__)

#: Seconds between looks at the own health.
HEALTH_EVERY = 2.0
#: Seconds between looks whether a process that runs one job is still wanted.
LONE_POLL = 0.5
#: Seconds between sweeps of the local scratch folder.
SWEEP_EVERY = 10.0

#: Opens what a stage needs of its own, e.g. its fork server, and gives its handler.
OpenHandler = Callable[[StageDeps], AbstractContextManager[Handler]]


def main(stage: Actor, open_handler: OpenHandler, *, program: Sequence[str]) -> None:
    """Run a worker of one stage until it is told to stop; exits the process.

    Args:
        stage: whose messages to take.
        open_handler: opens what the stage needs.
        program: command that starts such a worker, for jobs that must run alone; empty where none
            may be started.

    """

    def serve_this(loaded: Settings) -> int:
        lone = alone.parse(sys.argv[1:])
        if lone is not None:
            return serve_alone(stage, loaded, open_handler, *lone)
        return serve(stage, loaded, open_handler, program=program)

    sys.exit(process.run(stage.value, serve_this))


def serve(
    stage: Actor, loaded: Settings, open_handler: OpenHandler, *, program: Sequence[str] = ()
) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit status.

    Raises:
        ConfigError: something is wrong that waiting does not mend.

    """
    log.info("settings", **loaded.changed())
    with ExitStack() as stack:
        signals = stack.enter_context(closing(EndSignals()))
        signals.listen()
        probes = stack.enter_context(closing(Probes(loaded)))
        deps = replace(open_deps(stage, loaded, stack), program=program)
        handler = stack.enter_context(open_handler(deps))
        recycle = Recycle.of(deps.limits, wake=signals.wake)
        worker = stage_worker(deps, handler, recycle)
        probes.watch(stage, worker)
        probes.check(lambda: "the watch over runs is stuck" if deps.running.is_stuck() else "")
        _look_for_a_mark(deps)
        deps.running.read_wishes()
        worker.start()
        deps.running.start()
        probes.started()
        log.info("worker_ready", stage=stage.value, worker=deps.worker_id)
        status = _until_told(deps, probes, worker, signals, recycle)
        _end(deps, worker, signals)
        return status


def serve_alone(
    stage: Actor, loaded: Settings, open_handler: OpenHandler, message: Message, attempt_id: str
) -> int:
    """Run one message and return the exit status; told to end, the run hands back at once."""
    parent = os.getppid()
    with ExitStack() as stack:
        signals = stack.enter_context(closing(EndSignals()))
        signals.listen()
        deps = replace(open_deps(stage, loaded, stack), alone=True)
        handler = stack.enter_context(open_handler(deps))
        deps.running.start()
        stack.callback(deps.running.stop)
        failure: list[BaseException] = []

        def work() -> None:
            tell_lines(stage, message)
            try:
                run_stage(deps, handler, message, attempt_id=attempt_id)
            except BaseException as exc:  # noqa: BLE001  # told by the exit status
                failure.append(exc)
            finally:
                signals.wake()

        thread = Thread(target=work, name="run", daemon=True)
        thread.start()
        while thread.is_alive():
            signals.wait(LONE_POLL)
            if signals.count or os.getppid() != parent:
                deps.drain.set()
                thread.join(LONE_POLL)
        if not failure:
            return EXIT_OK
        log.error("lone_run_failed", error=repr(failure[0]))
        return alone.EXIT_STORE_AWAY if isinstance(failure[0], StoreAwayError) else EXIT_UNHEALTHY


def tell_lines(stage: Actor, message: Message) -> None:
    """Bind to this thread's log lines what `LogContext` binds where a broker delivers."""
    tracing.enter(message.traceparent)
    bind_contextvars(
        stage=stage.value,
        queue=message.queue,
        message_id=message.id,
        tries=message.deliveries,
        job=message.job_id,
        epoch=message.epoch,
    )


def _look_for_a_mark(deps: StageDeps) -> None:
    """A worker that is to go again soon begins nothing."""
    try:
        deps.standby.look()
    except BrokerAwayError as exc:
        log.debug("standby_unknown", reason=str(exc))


def stage_worker(deps: StageDeps, handler: Handler, recycle: Recycle | None = None) -> StageWorker:
    """A worker whose actor runs the stage, not yet started."""
    if recycle is not None:
        deps.broker.add_middleware(recycle, before=TimeLimit)

    def delivered(job: str, epoch: int, traceparent: str | None) -> Message:
        current = CurrentMessage.get_current_message()
        if current is None:
            raise RuntimeError("an actor runs inside a worker only")
        return Message(
            id=current.message_id,
            queue=current.queue_name,
            job_id=job,
            epoch=epoch,
            delivered_at=deps.clock(),
            published_at=current.message_timestamp / 1000,
            traceparent=traceparent,
            deliveries=current.options.get("tries", 1),
        )

    def actor(job: str, epoch: int, traceparent: str | None = None) -> None:
        run_stage(deps, handler, delivered(job, epoch, traceparent))

    declare_actor(deps.broker, deps.stage, actor)
    if isinstance(handler, Helped):
        helper = handler.help

        def helping(job: str, epoch: int, traceparent: str | None = None) -> None:
            run_help(deps, helper, delivered(job, epoch, traceparent))

        declare_actor(deps.broker, Actor.HELP, helping)
    worker = StageWorker(
        deps.broker,
        deps.stage,
        threads=deps.limits.concurrency,
        waker=open_waker(deps),
        on_dead_letter=lambda raw, reason: keep_letter(deps, raw, reason),
        lanes=deps.limits.taken_lanes,
        pause_reason=lambda: deps.running.store_away() or deps.standby.reason(),
        paused=deps.running.paused,
        drain_event=deps.drain,
        worker_id=deps.worker_id,
    )
    deps.standby.watch(worker.is_quiet)
    return worker


def keep_letter(deps: StageDeps, raw: bytes, reason: str) -> None:
    """Store a message that no actor can take."""
    with engine.write(deps.engine) as connection:
        dead_letters.add(
            connection,
            queue=deps.stage.value,
            job_id=None,
            reason=reason,
            payload=raw.decode("utf-8", "replace"),
            now=deps.clock(),
        )
    log.warning("dead_letter", reason=reason)


def _until_told(
    deps: StageDeps, probes: Probes, worker: StageWorker, signals: EndSignals, recycle: Recycle
) -> int:
    next_sweep = 0.0
    while not signals.count:
        if recycle.reason is not None:
            log.info("worker_retired", reason=recycle.reason)
            count(deps.engine, "worker_retired_total", reason=recycle.reason)
            return EXIT_OK
        if _has_drained(deps, worker):
            return EXIT_OK
        if time.monotonic() >= next_sweep:
            next_sweep = time.monotonic() + SWEEP_EVERY
            _sweep_scratch(deps)
        reason = probes.unlive()
        if reason:
            # A process that lost a part of itself would only look alive.
            log.error("worker_unhealthy", reason=reason)
            count(deps.engine, "worker_retired_total", reason="unhealthy")
            return EXIT_UNHEALTHY
        signals.wait(HEALTH_EVERY)
    return EXIT_OK


def _has_drained(deps: StageDeps, worker: StageWorker) -> bool:
    """Whether an operator asked this worker to end, and it has nothing left to do."""
    if not deps.running.is_asked_to_drain:
        return False
    if worker.hold("asked to drain"):
        log.info("worker_asked_to_drain", running=len(worker.running))
    if not worker.is_quiet():
        return False
    log.info("worker_drained")
    return True


def _sweep_scratch(deps: StageDeps) -> None:
    try:
        removed = scratch.sweep(deps.engine, deps.settings.store.scratch_dir, deps.stage)
    except StoreAwayError as exc:
        log.info("sweep_postponed", reason=str(exc))
        return
    if removed:
        log.info("scratch_swept", folders=removed)


def _end(deps: StageDeps, worker: StageWorker, signals: EndSignals) -> None:
    deps.ending.set()
    log.info("worker_draining", running=len(worker.running), grace=deps.limits.drain_grace)
    # The first signal asks for the drain; another one means that nobody wants to wait.
    patience = max(1, signals.count)
    idle = worker.drain(deps.limits.drain_grace, hurry=lambda: signals.count > patience)
    if not idle:
        log.warning("drain_incomplete", running=len(worker.running))
    worker.stop()
    deps.running.stop()
    log.info("worker_stopped")
