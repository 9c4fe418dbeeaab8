from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
import redis

from sluice_core.adapters.redis import connect_broker, connect_waker
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker import (
    Outgoing,
    SluiceBroker,
    StageWorker,
    consumer,
    declare_actor,
)
from sluice_core.runtime.broker.middleware.shutdown import DrainNotice
from sluice_testing.waiting import PATIENCE

Q = "parse.default"


@dataclass
class Rig:
    """A broker, and workers whose actor notes what it gets and can be held up."""

    url: str
    stack: ExitStack
    client: redis.Redis
    broker: SluiceBroker
    dead: list[tuple[bytes, str]] = field(default_factory=list)

    def new_broker(self, *middleware: Any) -> SluiceBroker:
        client = self.stack.enter_context(connect_broker(self.url))
        return SluiceBroker(client, middleware=middleware)

    def worker(
        self,
        fn: Callable[..., None],
        *,
        actor: Actor = Actor.PARSE,
        start: bool = True,
        middleware: tuple[Any, ...] = (),
        **options: Any,
    ) -> StageWorker:
        drain_event = options.pop("drain_event", None) or Event()
        broker = self.new_broker(DrainNotice(drain_event), *middleware)
        declare_actor(broker, actor, fn)
        options = {"threads": 1, "on_dead_letter": lambda *row: self.dead.append(row), **options}
        block = consumer.BLOCK_SECONDS
        waker = self.stack.enter_context(connect_waker(self.url, longest_block=block))
        worker = StageWorker(broker, actor, waker=waker, drain_event=drain_event, **options)
        if start:
            worker.start()
            self.stack.callback(worker.stop, PATIENCE)
        return worker

    def publish(self, *names: str, lane: str = "default", actor: str = "parse") -> list[bool]:
        return self.broker.publish_many(
            [Outgoing(name, actor, f"{actor}.{lane}", {"job": name}) for name in names]
        )

    def fetch(
        self,
        worker_id: str = "w",
        *,
        idle: int = 10,
        lanes: Sequence[tuple[str, bool]] = ((Q, False),),
        **rules: Any,
    ) -> list[tuple[str, str, bytes, int]]:
        """One atomic fetch: rows of (queue, id, message, times handed out)."""
        usual = {"room": idle, "starve_ms": 60_000, "starve_every": 10, "turns": "parse"}
        return self.broker.scripts.fetch(worker_id, idle=idle, lanes=lanes, **usual | rules)

    def place(self, message_id: str, queue: str = Q) -> str:
        """`waiting`, `in_flight` or `absent`."""
        return self.broker.sights([(queue, message_id)])[0].place

    def ids(self, lane: str = "default", actor: str = "parse") -> list[str]:
        return [i.decode() for i in self.client.lrange(f"dramatiq:{actor}.{lane}", 0, -1)]


def make_rig(url: str, stack: ExitStack) -> Rig:
    client = stack.enter_context(connect_broker(url))
    return Rig(url, stack, client, SluiceBroker(client))


@pytest.fixture
def only_when_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself before a test has given up."""
    monkeypatch.setattr(consumer, "BLOCK_SECONDS", 3 * PATIENCE)


@pytest.fixture
def rig(redis_url: str) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield make_rig(redis_url, stack)


@pytest.fixture
def rig_on() -> Iterator[Callable[[str], Rig]]:
    with ExitStack() as stack:
        yield lambda url: make_rig(url, stack)


class Gate:
    """An actor that notes what it gets, and lets each run end when told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.open = Event()

    def __call__(self, **kwargs: str) -> None:
        self.started.append(kwargs["job"])
        assert self.open.wait(2 * PATIENCE)
        self.ended.append(kwargs["job"])


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()
