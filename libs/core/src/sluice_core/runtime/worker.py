"""The life of a worker process: check, consume, drain, end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from threading import Event
from types import FrameType

import redis as redis_library
import structlog
from dramatiq.middleware import CurrentMessage

from sluice_core.adapters import logs, redis, settings
from sluice_core.adapters.db import dead_letters, engine
from sluice_core.adapters.db.runs import Message
from sluice_core.adapters.ids import new_id
from sluice_core.adapters.settings import Settings
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.errors import BrokerAwayError, ConfigError, StoreAwayError
from sluice_core.domain.keys import worker as worker_key
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import scratch
from sluice_core.runtime.broker import SluiceBroker, StageWorker, declare_actor
from sluice_core.runtime.broker.middleware.log_context import LogContext
from sluice_core.runtime.broker.middleware.shutdown import DrainNotice
from sluice_core.runtime.broker.middleware.time_limit import final_guard
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.running import Running
from sluice_core.runtime.stage import Handler, StageDeps, run_stage

log = structlog.get_logger(__name__)

#: Seconds that a store may be away at start before the process gives up.
START_PATIENCE = 30.0
#: Seconds between looks at the own health.
HEALTH_EVERY = 2.0
#: Seconds between sweeps of the local scratch folder.
SWEEP_EVERY = 10.0
#: Seconds after which what a worker said of itself is forgotten.
PRESENCE_TTL = 15

EXIT_OK, EXIT_UNHEALTHY, EXIT_CONFIG = 0, 1, 2

#: Opens what a stage needs of its own, e.g. its fork server, and gives its handler.
OpenHandler = Callable[[StageDeps], AbstractContextManager[Handler]]


def main(stage: Actor, open_handler: OpenHandler) -> None:
    """Run a worker of one stage until it is told to stop; exits the process."""
    sys.exit(_guarded(stage, open_handler))


def _guarded(stage: Actor, open_handler: OpenHandler) -> int:
    try:
        loaded = settings.load()
        logs.configure(
            level=loaded.log.log_level, log_format=loaded.log.log_format, process=stage.value
        )
        return serve(stage, loaded, open_handler)
    except ConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        return EXIT_CONFIG


def serve(stage: Actor, loaded: Settings, open_handler: OpenHandler) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit status.

    Raises:
        ConfigError: something is wrong that waiting does not mend.

    """
    told = Event()

    def tell(_signal: int, _frame: FrameType | None) -> None:
        told.set()

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, tell)
    log.info("settings", **loaded.effective())
    with ExitStack() as stack:
        deps = open_deps(stage, loaded, stack)
        handler = stack.enter_context(open_handler(deps))
        worker = _worker(deps, handler)
        worker.start()
        deps.running.start()
        log.info("worker_ready", stage=stage.value, worker=deps.worker_id)
        status = _until_told(deps, worker, told)
        _end(deps, worker)
        return status


def open_deps(stage: Actor, loaded: Settings, stack: ExitStack) -> StageDeps:
    """Open the stores, once they are fit for use.

    Raises:
        ConfigError: one sentence on what is wrong with which store.

    """
    url = loaded.store.redis_url
    if not url:
        raise ConfigError("SLUICE_REDIS_URL is not set; `sluice up` brings a Redis of its own.")
    signals = redis.connect(url)
    stack.callback(signals.close)
    database = engine.open_engine(
        loaded.store.effective_database_url, pool_size=loaded.store.database_pool
    )
    stack.callback(database.dispose)
    storage = open_storage(loaded.store.effective_storage_url)
    patiently(lambda: redis.check(signals))
    patiently(lambda: engine.check(database))
    storage.check()
    _prepare_scratch(loaded)
    drain = Event()
    broker_client = redis.connect_broker(url)
    stack.callback(broker_client.close)
    worker_id = f"{socket.gethostname()}-{stage.value}-{os.getpid()}-{new_id()[-6:]}"
    broker = SluiceBroker(
        broker_client,
        middleware=[LogContext(), DrainNotice(drain), CurrentMessage(), final_guard()],
    )
    presence = _Presence(signals, stage, worker_id)
    running = Running(database, on_beat=lambda: presence.show(running.jobs()))
    return StageDeps(
        stage=stage,
        settings=loaded,
        engine=database,
        storage=storage,
        broker=broker,
        signals=signals,
        running=running,
        failpoints=Failpoints(loaded.log.failpoints, loaded.log.failpoints_log),
        worker_id=worker_id,
        drain=drain,
    )


def patiently(check: Callable[[], None], patience: float = START_PATIENCE) -> None:
    """Repeat a check while the store behind it is only away.

    Raises:
        ConfigError: it is wrong, or still away after `patience` seconds.

    """
    deadline = time.monotonic() + patience
    while True:
        try:
            check()
        except ConfigError as exc:
            away = isinstance(
                exc.__cause__,
                (StoreAwayError, redis_library.ConnectionError, redis_library.TimeoutError),
            )
            if not away or time.monotonic() > deadline:
                raise
            log.warning("waiting_for_store", reason=str(exc))
            time.sleep(1.0)
        else:
            return


def _prepare_scratch(loaded: Settings) -> None:
    try:
        loaded.store.scratch_dir.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(
            f"The data folder {loaded.store.data_dir} can't be written: {exc.strerror}."
        ) from exc


def _worker(deps: StageDeps, handler: Handler) -> StageWorker:
    def actor(job: str, epoch: int, traceparent: str | None = None) -> None:
        current = CurrentMessage.get_current_message()
        if current is None:
            raise RuntimeError("an actor runs inside a worker only")
        run_stage(
            deps,
            handler,
            Message(
                id=current.message_id,
                queue=current.queue_name,
                job_id=job,
                epoch=epoch,
                delivered_at=deps.clock(),
                published_at=current.message_timestamp / 1000,
                traceparent=traceparent,
            ),
        )

    declare_actor(deps.broker, deps.stage, actor)
    return StageWorker(
        deps.broker,
        deps.stage,
        threads=deps.limits.concurrency,
        waker=open_waker(deps),
        on_dead_letter=lambda raw, reason: keep_letter(deps, raw, reason),
        pause_reason=deps.running.store_away,
        drain_event=deps.drain,
        worker_id=deps.worker_id,
    )


def open_waker(deps: StageDeps) -> redis_library.Redis:
    """A client for blocking waits; its connections end with the process."""
    return redis.connect_waker(deps.settings.store.redis_url)


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


def _until_told(deps: StageDeps, worker: StageWorker, told: Event) -> int:
    next_sweep = 0.0
    while not told.wait(HEALTH_EVERY):
        if time.monotonic() >= next_sweep:
            next_sweep = time.monotonic() + SWEEP_EVERY
            _sweep_scratch(deps)
        health = worker.healthy()
        if health.ok and not deps.running.is_stuck():
            continue
        # A process that lost a part of itself would only look alive.
        log.error("worker_unhealthy", reason=health.reason or "the watch over runs is stuck")
        return EXIT_UNHEALTHY
    return EXIT_OK


def _sweep_scratch(deps: StageDeps) -> None:
    try:
        removed = scratch.sweep(deps.engine, deps.settings.store.scratch_dir, deps.stage)
    except StoreAwayError as exc:
        log.info("sweep_postponed", reason=str(exc))
        return
    if removed:
        log.info("scratch_swept", folders=removed)


def _end(deps: StageDeps, worker: StageWorker) -> None:
    log.info("worker_draining", running=len(worker.running))
    idle = worker.drain(deps.limits.drain_grace)
    if not idle:
        log.warning("drain_incomplete", running=len(worker.running))
    worker.stop()
    deps.running.stop()
    log.info("worker_stopped")


@dataclass(slots=True)
class _Presence:
    """What this worker says of itself, for people who look at the pool."""

    signals: redis_library.Redis
    stage: Actor
    worker_id: str
    since: float = 0.0

    def show(self, jobs: list[tuple[str, int]]) -> None:
        self.since = self.since or time.time()
        key = worker_key(self.worker_id)
        try:
            with redis.call():
                pipe = self.signals.pipeline(transaction=False)
                pipe.hset(
                    key,
                    mapping={
                        "stage": self.stage.value,
                        "since": self.since,
                        "pid": os.getpid(),
                        "jobs": " ".join(job_id for job_id, _ in jobs),
                    },
                )
                pipe.expire(key, PRESENCE_TTL)
                pipe.execute()
        except BrokerAwayError as exc:
            log.debug("presence_lost", error=str(exc))
