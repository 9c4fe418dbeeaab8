"""What the runs of a worker process share, opened once and handed on."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event

import redis as redis_library
import sqlalchemy as sa
from dramatiq.middleware import CurrentMessage

from sluice_core.adapters import redis
from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.engine import check, open_engine
from sluice_core.adapters.ids import new_id
from sluice_core.adapters.settings import Settings, StageSettings
from sluice_core.adapters.storage import Storage, open_storage
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.standby import worker_id as name_worker
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.broker.middleware.idempotency import IdempotencyLock
from sluice_core.runtime.broker.middleware.log_context import LogContext
from sluice_core.runtime.broker.middleware.shutdown import DrainNotice
from sluice_core.runtime.broker.middleware.time_limit import final_guard
from sluice_core.runtime.counting import count
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.hosts import HostGate
from sluice_core.runtime.locks import RunLocks
from sluice_core.runtime.patience import check_storage, patiently
from sluice_core.runtime.presence import Presence
from sluice_core.runtime.running import BEAT_EVERY, Running
from sluice_core.runtime.standby import StandbyWatch
from sluice_core.runtime.teller import Teller

#: Seconds between two signs of a worker on standby: whoever marked it waits for it.
STANDBY_BEAT = 1.0


@dataclass(frozen=True, kw_only=True)
class StageDeps:
    """What every run of one process shares."""

    stage: Actor
    settings: Settings
    engine: sa.Engine
    storage: Storage
    broker: SluiceBroker
    #: Client of the `sluice:` keys.
    signals: redis_library.Redis
    teller: Teller
    running: Running
    standby: StandbyWatch
    locks: RunLocks
    hosts: HostGate
    failpoints: Failpoints
    worker_id: str
    #: Set when runs are to hand back.
    drain: Event
    #: Set from when this process was told to end; its runs may still go on.
    ending: Event = field(default_factory=Event)
    #: Command that starts a worker of this stage; empty where none may be started.
    program: Sequence[str] = ()
    #: This process exists for a single run.
    alone: bool = False
    #: Unix seconds, as all write them who use this database.
    clock: Callable[[], float]
    rng: random.Random = field(default_factory=random.Random)

    @property
    def limits(self) -> StageSettings:
        return self.settings.stages[self.stage]


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
    clock = DatabaseClock()
    database = open_engine(
        loaded.store.effective_database_url, pool_size=loaded.store.database_pool, clock=clock
    )
    stack.callback(database.dispose)
    storage = open_storage(loaded.store.effective_storage_url)
    patience = loaded.store.start_patience
    patiently(lambda: redis.check(signals), patience)
    patiently(lambda: check(database), patience)
    patiently(lambda: check_storage(storage, database), patience)
    _prepare_scratch(loaded)
    return make_deps(
        stage, loaded, stack, engine=database, storage=storage, signals=signals, clock=clock
    )


def make_deps(
    stage: Actor,
    loaded: Settings,
    stack: ExitStack,
    *,
    engine: sa.Engine,
    storage: Storage,
    signals: redis_library.Redis | None = None,
    clock: Callable[[], float] = time.time,
) -> StageDeps:
    """What the runs of a process share, on stores that are open and fit for use."""
    url = loaded.store.redis_url
    if signals is None:
        signals = redis.connect(url)
        stack.callback(signals.close)
    drain = Event()
    teller = Teller(signals)
    stack.callback(teller.close)
    pod = loaded.log.pod_name or socket.gethostname()
    worker_id = name_worker(pod, stage.value, os.getpid(), new_id()[-6:])
    locks = RunLocks(signals, stage)
    rng = random.Random()  # noqa: S311  # jitter is no secret
    hosts = HostGate(signals, limit=loaded.egress.host_concurrency, rng=rng)
    presence = Presence(signals, stage, worker_id, clock, loaded.jobs.ytdlp_path)
    standby = StandbyWatch(signals, pod)

    def tell_redis() -> None:
        if stage in STAGES:
            standby.look()
        presence.show(
            running.jobs(), standby=standby.confirmed(), draining=running.is_asked_to_drain
        )
        locks.renew(running.owned())
        hosts.renew()

    def tell_every() -> float:
        return STANDBY_BEAT if standby.reason() else BEAT_EVERY

    running = Running(engine, worker_id=worker_id, on_beat=tell_redis, beat_every=tell_every)
    return StageDeps(
        stage=stage,
        settings=loaded,
        engine=engine,
        storage=storage,
        broker=_open_broker(
            url,
            stack,
            lock=IdempotencyLock(
                locks, lambda: count(engine, "lock_contended_total", stage=stage.value)
            ),
            drain=drain,
        ),
        signals=signals,
        teller=teller,
        running=running,
        standby=standby,
        locks=locks,
        hosts=hosts,
        failpoints=Failpoints(loaded.log.failpoints, loaded.log.failpoints_log),
        worker_id=worker_id,
        drain=drain,
        clock=clock,
        rng=rng,
    )


def _open_broker(
    url: str, stack: ExitStack, *, lock: IdempotencyLock, drain: Event
) -> SluiceBroker:
    client = redis.connect_broker(url)
    stack.callback(client.close)
    # Time limit last: its exception must not land in another hook.
    middleware = [LogContext(), lock, DrainNotice(drain), CurrentMessage(), final_guard()]
    return SluiceBroker(client, middleware=middleware)


def _prepare_scratch(loaded: Settings) -> None:
    try:
        loaded.store.scratch_dir.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(
            f"The data folder {loaded.store.data_dir} can't be written: {exc.strerror}."
        ) from exc


def open_waker(deps: StageDeps) -> redis_library.Redis:
    """A client for blocking waits; its connections end with the process."""
    return redis.connect_waker(deps.settings.store.redis_url)
