"""No-op messages: our consumer with its whole list of middleware, beside bare dramatiq."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.worker import Worker

from sluice_core.adapters import settings
from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.redis import connect_waker
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker import Outgoing, StageWorker, declare_actor
from sluice_core.runtime.broker.middleware.recycle import Recycle
from sluice_core.runtime.deps import StageDeps, make_deps
from sluice_testing.redis import RedisServer

THREADS = 8
MESSAGES = 3000
#: Seconds until all messages must be consumed.
PATIENCE = 120.0


class Counter:
    """Counts calls from many threads, and tells when all have come."""

    def __init__(self) -> None:
        self._numbers = iter(range(1, MESSAGES + 1))
        self.all = Event()

    def __call__(self, **_ids: object) -> None:
        # One bytecode of a C iterator: no lock is needed.
        if next(self._numbers) == MESSAGES:
            self.all.set()


def bare(url: str) -> float:
    """Messages per second of dramatiq alone, which holds as many messages as it has threads."""
    broker = RedisBroker(url=url, middleware=[], namespace="bare")
    counter = Counter()
    actor = dramatiq.Actor(
        counter, broker=broker, actor_name="noop", queue_name="noop", priority=0, options={}
    )
    for n in range(MESSAGES):
        actor.send(job=str(n), epoch=n)
    worker = Worker(broker, worker_threads=THREADS, worker_timeout=100)
    worker.queue_prefetch = THREADS
    return _rate(counter, worker.start, worker.stop)


def stage_of(url: str, folder: Path, stack: ExitStack) -> tuple[StageDeps, Counter]:
    """What a worker stands on, with the messages waiting and nothing but the run left out."""
    loaded = settings.load({"SLUICE_DATA_DIR": str(folder), "SLUICE_REDIS_URL": url})
    engine = open_engine(f"sqlite:///{folder / 'none.db'}")
    stack.callback(engine.dispose)
    storage = open_storage(loaded.store.effective_storage_url)
    deps = make_deps(Actor.PARSE, loaded, stack, engine=engine, storage=storage)
    recycle = Recycle.of(deps.limits, wake=lambda: None)
    deps.broker.add_middleware(recycle, before=dramatiq.middleware.TimeLimit)
    counter = Counter()
    declare_actor(deps.broker, Actor.PARSE, counter)
    deps.broker.publish_many(
        [
            Outgoing(f"m{n}", "parse", "parse.default", {"job": str(n), "epoch": n})
            for n in range(MESSAGES)
        ]
    )
    return deps, counter


def ours(url: str, folder: Path) -> float:
    """The same of a worker as a stage has it, with everything but the run itself."""
    with ExitStack() as stack:
        deps, counter = stage_of(url, folder, stack)
        worker = StageWorker(
            deps.broker,
            Actor.PARSE,
            threads=THREADS,
            waker=stack.enter_context(connect_waker(url)),
            on_dead_letter=_no_letters,
            drain_event=deps.drain,
        )
        return _rate(counter, worker.start, worker.stop)


def _no_letters(_raw: bytes, reason: str) -> None:
    raise RuntimeError(reason)


def _rate(counter: Counter, start: Callable[[], None], stop: Callable[[], None]) -> float:
    began = time.perf_counter()
    start()
    try:
        if not counter.all.wait(PATIENCE):
            raise TimeoutError("not all messages were consumed")
        return MESSAGES / (time.perf_counter() - began)
    finally:
        stop()


def throughput(rounds: int = 5) -> dict[str, float]:
    """Both in turns: medians and their ratio."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        folder = Path(name)
        server = RedisServer(folder / "redis")
        server.start()
        try:
            pairs = []
            for _ in range(rounds):
                server.flush()
                pairs.append((bare(server.url), ours(server.url, folder)))
        finally:
            server.stop()
    base, own = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {
        "bare_per_s": round(base),
        "sluice_per_s": round(own),
        "ratio": round(own / base, 2),
    }
