# ruff: noqa: ARG001  # handlers have a fixed signature
"""The idempotency lock: taken over upwards, given back by its holder alone, never in the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import pytest

from sluice_core.adapters.db import tallies
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.redis import connect
from sluice_core.domain import keys
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_core.runtime.locks import TTL, RunLocks
from sluice_core.runtime.run import Advance
from sluice_testing.waiting import fastest, until

KEY = keys.lock("job", "download")


@pytest.fixture
def client(redis_url: str) -> Iterator:
    with connect(redis_url) as opened:
        yield opened


@pytest.fixture
def locks(client):
    return RunLocks(client, Actor.DOWNLOAD)


def advance(run):
    return Advance(Actor.TRANSCODE, {"sources": [{"key": "k"}]})


def contended(deps):
    """Messages that were dropped, by all processes, as metrics tell it."""
    with write(deps.engine) as connection:
        tallies.fold(connection)
        cells = tallies.read(connection)
    return sum(value for (series, _), value in cells.items() if series == "lock_contended_total")


def test_a_later_run_takes_over_and_an_earlier_one_does_not(client, locks):
    assert locks.take("job", 3)
    assert locks.take("job", 5)
    assert not locks.take("job", 4)
    assert client.get(KEY) == "5"
    assert TTL / 2 < client.ttl(KEY) <= TTL


def test_only_ones_own_is_released(client, locks):
    locks.take("job", 5)
    locks.release("job", 3)
    assert client.get(KEY) == "5"
    locks.release("job", 5)
    assert client.get(KEY) is None


def test_a_message_is_behind_once_a_later_run_holds_the_job(locks):
    assert not locks.is_behind("job", 1)
    locks.take("job", 2)
    assert locks.is_behind("job", 1)
    assert not locks.is_behind("job", 2)


def test_renewal_keeps_a_lock_and_brings_a_lost_one_back(client, locks):
    locks.take("job", 5)
    client.expire(KEY, 1)
    locks.renew([("job", 5), ("other", 1)])
    assert client.ttl(KEY) > TTL / 2
    client.flushdb()
    locks.renew([("job", 5)])
    assert client.get(KEY) == "5"


def test_a_run_holds_its_lock_and_gives_it_back(rig):
    job, message = rig.job_at()
    key = keys.lock(job.id, "download")
    held = []
    signals = rig.deps().signals
    rig.run(lambda run: held.append(signals.get(key)) or advance(run), message)
    assert held == [str(message.epoch + 1)]
    assert signals.get(key) is None


def test_a_run_renews_its_lock(rig):
    job, message = rig.job_at()
    key = keys.lock(job.id, "download")
    signals = rig.deps().signals

    def handle(run):
        signals.delete(key)
        until(lambda: signals.get(key))
        return advance(run)

    rig.run(handle, message)
    assert rig.now(job).status is Status.MERGING


def test_a_duplicate_of_a_live_claim_is_acknowledged_and_dropped(
    new_rig, engine, redis_url, tmp_path
):
    hits = tmp_path / "hits"
    rig = new_rig(
        engine,
        redis_url,
        SLUICE_FAILPOINTS="run.delivered=log",
        SLUICE_FAILPOINTS_LOG=str(hits),
    )
    job, message = rig.job_at()
    began, end = [], Event()

    def handle(run):
        began.append(run.id.epoch)
        assert end.wait(60)
        return advance(run)

    one, _ = rig.worker(handle), rig.worker(handle)
    rig.publish(job)
    until(lambda: began)
    for n in range(3):
        ids = {"job": job.id, "epoch": message.epoch}
        one.broker.publish(f"copy-{n}", "download", "download.default", ids)
    until(lambda: contended(one) == 3)
    until(lambda: one.broker.in_flight(["download.default"])["download.default"] == 1)
    end.set()
    until(lambda: rig.now(job).status is Status.MERGING)
    assert began == [message.epoch + 1]
    assert hits.read_text() == "run.delivered\n"  # the copies cost no transaction


def test_a_lock_that_a_dead_run_left_is_no_obstacle(rig):
    job, message = rig.job_at()
    rig.deps().locks.take(job.id, message.epoch)
    rig.worker(advance)
    rig.publish(job)
    until(lambda: rig.now(job).status is Status.MERGING)


def test_without_redis_the_lock_is_no_obstacle(own_redis, engine, new_rig):
    rig = new_rig(engine, own_redis.url)
    job, message = rig.job_at()
    deps = rig.deps()
    own_redis.kill9()
    assert not deps.locks.is_behind(job.id, 0)
    rig.run(advance, message)
    assert rig.now(job).status is Status.MERGING


def test_a_silent_redis_delays_no_cancel(own_redis, engine, new_rig):
    from sluice_core.adapters.db import moves  # noqa: PLC0415  # one use
    from sluice_core.adapters.db.engine import write  # noqa: PLC0415

    rig = new_rig(engine, own_redis.url)
    took = []

    def handle(run):
        own_redis.pause()
        time.sleep(3.5)  # the threads of this process have met the silence
        with write(engine) as c:
            moves.cancel(c, run.job.id, now=time.time())
        began = time.monotonic()
        try:
            until(run.stop)
            took.append(time.monotonic() - began)
        finally:
            own_redis.cont()
        return run.check()

    def seconds():
        _, message = rig.job_at()
        rig.run(handle, message)
        return took.pop()

    assert fastest(seconds, below=2) < 2
