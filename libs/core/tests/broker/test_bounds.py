"""Each kind of Redis key is filled past its cap, or shown to go by itself."""

from __future__ import annotations

import time

import pytest
import redis

from sluice_core.adapters import events
from sluice_core.domain import keys
from sluice_core.domain.job import Job, Progress, Request
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_testing.waiting import until

Q = "parse.default"
#: Tokens in one wake list, see `common.lua`.
WAKE_CAP = 64


def test_wake_tokens_do_not_pile_up(rig):
    for start in range(0, 300, 100):
        rig.publish(*(f"m{n}" for n in range(start, start + 100)))
    assert rig.client.llen(f"dramatiq:__wake__.{Q}") == WAKE_CAP


def test_one_private_token_that_expires(rig):
    for _ in range(5):
        rig.broker.scripts.nudge("worker-1")
    key = "dramatiq:__wake__.@worker-1"
    assert rig.client.llen(key) == 1
    assert 0 < rig.client.ttl(key) <= 60


def test_nothing_is_left_of_messages_that_were_done(rig, gate):
    gate.open.set()
    worker = rig.worker(gate, threads=4)
    rig.publish(*(f"m{n}" for n in range(200)))
    until(lambda: len(gate.ended) == 200)
    until(lambda: rig.client.hlen(f"dramatiq:{Q}.msgs") == 0)
    worker.stop()
    left = {k.decode() for k in rig.client.keys("*")}
    # A worker's name goes with it, a queue's tokens with its last message.
    assert left <= {"dramatiq:__turns__.parse", "dramatiq:__heartbeats__"}
    assert rig.client.zcard("dramatiq:__heartbeats__") == 0


def test_workers_that_died_are_forgotten(rig):
    for n in range(150):
        rig.broker.scripts.beat(f"worker-{n}")
    time.sleep(0.01)  # the server's clock moves on by a millisecond
    while rig.broker.client.zcard("dramatiq:__heartbeats__"):
        before = rig.broker.client.zcard("dramatiq:__heartbeats__")
        rig.broker.requeue_dead(0.005)
        # A hundred at a time: a script must not stall the server.
        assert before - rig.broker.client.zcard("dramatiq:__heartbeats__") == min(100, before)


def test_the_stream_of_events_is_cut(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keys, "EVENTS_MAXLEN", 300)
    job = Job(
        id="J",
        request=Request(url="https://media.example/film"),
        status=Status.DOWNLOADING,
        stage=Actor.DOWNLOAD,
        epoch=1,
        version=1,
        waiting_for=None,
        tries=1,
        losses=0,
        progress=Progress(),
        created_at=1.0,
        updated_at=1.0,
    )
    event = events.event_of(job, "job")
    with redis.Redis.from_url(redis_url) as client:
        for _ in range(1000):
            events.emit(client, event)
        # Redis cuts whole nodes of the stream only: a hundred entries each.
        assert client.xlen(keys.EVENTS) <= 400
