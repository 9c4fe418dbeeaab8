# ruff: noqa: ARG001, ARG005  # handlers have a fixed signature
"""A remote host sees a few runs at once, and none while it asks for patience."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from threading import Event

import pytest

from sluice_core.adapters.redis import connect
from sluice_core.domain import keys
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.runtime.hosts import LONGEST_WAIT, HostGate, host_of
from sluice_core.runtime.run import Advance
from sluice_testing.waiting import until


@pytest.fixture
def client(redis_url: str) -> Iterator:
    with connect(redis_url) as opened:
        yield opened


@pytest.fixture
def gate(client):
    return HostGate(client, limit=2, rng=random.Random(1))


def advance(run):
    return Advance(Actor.TRANSCODE, {"sources": [{"key": "k"}]})


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Media.Example:8443/a?b", "media.example"),
        ("http://media.example./a", "media.example"),
        ("http://[::1]:80/", "::1"),
        ("http://[broken/", ""),
        ("nonsense", ""),
    ],
)
def test_the_host_of_a_link(url, host):
    assert host_of(url) == host


def test_a_host_takes_its_limit_and_no_more(gate):
    assert gate.enter("a.example", "1") is None
    assert gate.enter("a.example", "2") is None
    wait = gate.enter("a.example", "3")
    assert not wait.paused
    assert 0.5 <= wait.seconds <= 3
    assert gate.enter("a.example", "1") is None  # its own slot
    assert gate.enter("b.example", "4") is None
    gate.leave("1")
    gate.leave("1")
    assert gate.enter("a.example", "3") is None


def test_a_slot_that_nobody_renews_is_free_again(gate, client):
    gate.enter("a.example", "1")
    gate.enter("a.example", "2")
    client.zadd(keys.host_slots("a.example"), {"1": 1, "2": 1})
    gate.renew()
    assert gate.enter("a.example", "3") is not None
    client.zadd(keys.host_slots("a.example"), {"1": 1})
    assert gate.enter("a.example", "3") is None


def test_a_crowd_asks_less_often(client):
    gate = HostGate(client, limit=1, rng=random.Random(1))
    gate.enter("a.example", "0")
    waits = [gate.enter("a.example", str(n)).seconds for n in range(1, 300)]
    assert waits[0] < 3
    assert sum(waits[-50:]) / 50 > LONGEST_WAIT * 0.7
    assert max(waits) <= LONGEST_WAIT * 1.5


def test_nothing_of_a_host_stays_for_ever(gate, client):
    for n in range(4):
        gate.enter("a.example", str(n))
    gate.pause("a.example", 5)
    assert [client.ttl(key) > 0 for key in client.keys("*")] == [True] * 3


def test_a_pause_keeps_everybody_out_and_is_never_made_shorter(gate):
    gate.pause("a.example", 200)
    gate.pause("a.example", 5)
    wait = gate.enter("a.example", "1")
    assert wait.paused
    assert 100 < wait.seconds < 202
    assert gate.enter("a.example", "1", counted=False).paused


def test_without_redis_everybody_may_go(own_redis):
    with connect(own_redis.url) as client:
        gate = HostGate(client, limit=1, rng=random.Random(1))
        gate.enter("a.example", "1")
        own_redis.kill9()
        assert gate.enter("a.example", "2") is None
        gate.leave("1")
        gate.pause("a.example", 5)


def test_who_gets_no_slot_waits_in_the_database_uncounted_and_blocks_nobody(
    new_rig, engine, redis_url
):
    rig = new_rig(engine, redis_url, SLUICE_HOST_CONCURRENCY="1", SLUICE_DOWNLOAD_CONCURRENCY="2")
    began, end = [], Event()

    def handle(run):
        began.append(run.job.id)
        assert end.wait(60)
        return advance(run)

    # Two processes, as in two pods: the limit is of all together.
    for _ in range(2):
        rig.worker(handle)
    first, _ = rig.job_at(url="https://a.example/1")
    rig.publish(first)
    until(lambda: began == [first.id])
    second, _ = rig.job_at(url="https://a.example/2")
    other, _ = rig.job_at(url="https://b.example/3")
    attempts = len(rig.attempts(second))
    before, asked_at = rig.order(second).id, time.time()
    rig.publish(second)
    rig.publish(other)
    until(lambda: began == [first.id, other.id])
    order = rig.order(second)
    assert order.id != before
    assert asked_at < order.due_at < time.time() + 3.5
    now = rig.now(second)
    assert (now.waiting_for, now.tries, now.epoch) == (WaitingFor.WORKER, 0, second.epoch)
    assert len(rig.attempts(second)) == attempts
    end.set()
    slots = keys.host_slots("a.example")
    until(lambda: rig.deps().signals.zcard(slots) == 0)
    rig.publish(second)
    until(lambda: rig.now(second).status is Status.MERGING)


def test_a_message_that_comes_late_takes_no_slot_from_the_run(new_rig, engine, redis_url):
    rig = new_rig(engine, redis_url, SLUICE_HOST_CONCURRENCY="1")
    _, message = rig.job_at(url="https://a.example/1")
    slots = keys.host_slots("a.example")
    taken = []

    def handle(run):
        # The same message once more, in the same process, while its run goes on.
        rig.run(lambda run: taken.append("ran twice"), message)
        taken.append(run.deps.signals.zcard(slots))
        return advance(run)

    rig.run(handle, message)
    assert taken == [1]
    assert rig.deps().signals.zcard(slots) == 0


def test_of_two_that_enter_as_one_the_last_gives_the_slot_back(gate, client):
    for _ in range(2):
        assert gate.enter("a.example", "1") is None
    slots = keys.host_slots("a.example")
    gate.leave("1")
    assert client.zcard(slots) == 1
    gate.leave("1")
    assert client.zcard(slots) == 0


def test_a_host_that_asks_for_patience_burns_no_tries_of_other_jobs(rig):
    limited, message = rig.job_at(url="https://a.example/1")

    def handle(run):
        raise SluiceError(code="rate_limited", retry_after=100)

    began = time.time()
    rig.run(handle, message)
    assert rig.now(limited).waiting_for is WaitingFor.RETRY
    for stage in (Actor.PARSE, Actor.DOWNLOAD):
        job, message = rig.job_at(stage, url="https://a.example/2")
        rig.run(lambda run: pytest.fail("the host wants no visitors"), message, stage)
        now = rig.now(job)
        assert (now.tries, now.waiting_for) == (0, WaitingFor.WORKER)
        assert began + 98 < rig.order(job).due_at < time.time() + 102
        assert now.retry_at == rig.order(job).due_at
    other, message = rig.job_at(url="https://b.example/2")
    rig.run(advance, message)
    assert rig.now(other).status is Status.MERGING


@pytest.mark.parametrize(("code", "after"), [("network", None), ("live_not_started", 3000.0)])
def test_a_failure_of_another_kind_pauses_nobody(rig, code, after):
    _, message = rig.job_at(url="https://a.example/1")

    def handle(run):
        raise SluiceError(code=code, retry_after=after)

    rig.run(handle, message)
    _, message = rig.job_at(url="https://a.example/2")
    rig.run(advance, message)
    assert rig.deps().signals.exists(keys.host_pause("a.example")) == 0
