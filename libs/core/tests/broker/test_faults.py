# ruff: noqa: PLW0108  # actors are called by keyword, fixtures by name
"""What happens to messages when workers or Redis go."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from sluice_core.domain.errors import BrokerAwayError
from sluice_core.runtime.broker import keeper
from sluice_core.runtime.broker.broker import DEAD_AFTER
from sluice_core.runtime.broker.scripts import Scripts, Settle
from sluice_testing.waiting import until

Q = "parse.default"


@contextmanager
def process(url, *, seconds=0.0, clock_ahead=0.0):
    program = Path(__file__).with_name("worker_process.py")
    worker = subprocess.Popen(
        [sys.executable, str(program), url, "parse", str(seconds), str(clock_ahead)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout.readline() == "boot\n"
        yield worker
    finally:
        worker.kill()
        worker.wait(60)
        worker.stdout.close()


def test_a_killed_process_gives_its_message_back_within_20_s(rig):
    with process(rig.url, seconds=60) as worker:
        rig.publish("a", "b")
        assert worker.stdout.readline() == "begin a\n"
        worker.kill()
        worker.wait(60)
        killed = time.monotonic()
    assert rig.broker.requeue_dead() == 0
    # By its own beats, which Redis dates.
    until(rig.broker.requeue_dead)
    assert time.monotonic() - killed > 10  # a living one may blink for as long
    assert DEAD_AFTER < 20
    assert rig.ids() == ["a", "b"]
    with process(rig.url) as worker:
        assert worker.stdout.readline() == "begin a\n"


def test_a_busy_process_is_not_taken_for_dead(rig):
    with process(rig.url, seconds=60) as worker:
        rig.publish("a")
        assert worker.stdout.readline() == "begin a\n"
        for _ in range(3):
            _next_beat(rig)
        assert rig.broker.requeue_dead() == 0
        assert rig.place("a") == "in_flight"


def _beats(rig):
    return dict(rig.client.zrange("dramatiq:__heartbeats__", 0, -1, withscores=True))


def _next_beat(rig, workers=1):
    """Wait until each worker has beaten once more; by worker, when."""
    before = _beats(rig)

    def all_have():
        now = _beats(rig)
        fresh = [name for name, at in now.items() if at > before.get(name, 0)]
        return len(fresh) == workers and now

    return until(all_have)


def test_a_worker_clock_ten_minutes_ahead_does_no_harm(rig):
    with process(rig.url, seconds=60) as normal:
        rig.publish("a")
        assert normal.stdout.readline() == "begin a\n"
        with process(rig.url, clock_ahead=600) as fast:
            rig.publish("b")
            assert fast.stdout.readline() == "begin b\n"
            assert fast.stdout.readline() == "end b\n"
            for _ in range(2):
                beats = _next_beat(rig, workers=2)
                assert rig.broker.requeue_dead() == 0
                assert rig.place("a") == "in_flight"
                seconds, _ = rig.client.time()
                assert len(beats) == 2
                # By the server's clock, not by those that are ten minutes apart.
                assert all(abs(at / 1000 - seconds) < 120 for at in beats.values())


def test_sigterm_ends_the_run_and_hands_over_the_rest(rig):
    with process(rig.url, seconds=0.5) as worker:
        rig.publish("a", "b")
        assert worker.stdout.readline() == "begin a\n"
        worker.terminate()
        assert worker.stdout.readline() == "end a\n"
        assert worker.wait(60) == 0
    assert rig.ids() == ["b"]
    assert rig.client.zcard("dramatiq:__heartbeats__") == 0


def test_a_fetch_that_timed_out_strands_nothing(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    got = []
    worker = rig.worker(lambda job: got.append(job), start=False)
    rig.client.connection_pool.connection_kwargs["socket_timeout"] = 3.0
    assert rig.fetch(worker.worker_id, idle=0) == []  # the server knows the script from here on
    rig.publish("a")
    own_redis.pause()
    with pytest.raises(BrokerAwayError):
        rig.fetch(
            worker.worker_id, idle=1
        )  # given up by the client, and run by the server once it goes on
    own_redis.cont()
    until(lambda: rig.place("a") == "in_flight")  # with nobody who knows of it
    worker.start()
    try:
        until(lambda: got == ["a"])
        until(lambda: rig.place("a") == "absent")
    finally:
        worker.stop()


def test_a_frozen_server_ends_in_delivery(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    got = []
    worker = rig.worker(lambda job: got.append(job), start=False)
    worker.broker.client.connection_pool.connection_kwargs["socket_timeout"] = 0.5
    worker.start()
    try:
        for n in range(3):
            own_redis.pause()
            time.sleep(1.2)
            own_redis.cont()
            rig.publish(f"m{n}")
            until(lambda n=n: f"m{n}" in got)
        assert worker.healthy().ok
    finally:
        worker.stop()


def test_a_message_under_way_is_no_stranger(rig, gate, monkeypatch):
    looks, reconcile = [], Scripts.reconcile

    def look(self, *args):
        looks.append(reconcile(self, *args))
        return looks[-1]

    monkeypatch.setattr(Scripts, "reconcile", look)
    monkeypatch.setattr(keeper, "RECONCILE_EVERY", 0.1)
    monkeypatch.setattr(keeper, "TICK", 0.1)
    worker = rig.worker(gate)
    rig.publish("a")
    until(lambda: gate.started)
    seen = len(looks)
    until(lambda: len(looks) >= seen + 3)
    assert set(looks) == {0}
    assert rig.place("a") == "in_flight"
    assert gate.started == ["a"]
    assert worker.running == {"a"}


def test_redis_gone_and_back_empty(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    got, away, back = [], Event(), Event()

    def run(job):
        if job == "a":
            away.set()
            assert back.wait(60)
        got.append(job)

    worker = rig.worker(run, threads=2)
    rig.publish("a")
    assert away.wait(60)
    own_redis.kill9()
    with pytest.raises(BrokerAwayError):
        rig.publish("b")
    time.sleep(1)
    assert worker.healthy().ok
    own_redis.restart_empty()
    back.set()
    until(lambda: got == ["a"])
    assert rig.publish("b") == [True]
    until(lambda: got == ["a", "b"])
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)


def test_a_run_that_ends_while_redis_is_frozen_is_acknowledged_later(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    began, end, ended = Event(), Event(), []

    def run(job):
        began.set()
        assert end.wait(60)
        ended.append(job)

    worker = rig.worker(run, start=False)
    worker.broker.client.connection_pool.connection_kwargs["socket_timeout"] = 0.5
    worker.start()
    try:
        rig.publish("a")
        assert began.wait(60)
        own_redis.pause()
        end.set()
        until(lambda: ended)
        until(lambda: not worker.running)  # the slot is free, whatever Redis does
        own_redis.cont()
        until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)
        time.sleep(0.3)
        assert ended == ["a"]
    finally:
        worker.stop()


def test_an_acknowledgement_that_was_refused_is_told_again(own_redis, rig_on, gate):
    rig = rig_on(own_redis.url)
    worker = rig.worker(gate)
    rig.publish("a")
    until(lambda: gate.started)
    rig.client.replicaof("127.0.0.1", "1")  # as during a failover: it answers, but takes nothing
    gate.open.set()
    until(lambda: gate.ended and not worker.running)
    assert rig.place("a") == "in_flight"
    rig.client.replicaof("NO", "ONE")
    until(lambda: rig.place("a") == "absent")
    assert gate.started == ["a"]


def test_a_late_acknowledgement_touches_nothing_of_the_next_holder(rig):
    rig.publish("a")
    scripts = rig.broker.scripts
    assert rig.fetch("late")
    time.sleep(0.01)
    assert scripts.reap(1, [Q]) == 1
    assert [row[3] for row in rig.fetch("next")] == [2]
    assert not scripts.settle("late", Settle.ACK, Q, "a", nudge=False)
    assert rig.place("a") == "in_flight"
    assert scripts.settle("next", Settle.ACK, Q, "a", nudge=False)
    assert rig.place("a") == "absent"
    assert not scripts.settle("next", Settle.ACK, Q, "a", nudge=False)


def test_returned_messages_come_first_and_oldest_first(rig):
    names = [f"m{n}" for n in range(6)]
    rig.publish(*names)
    for n, name in enumerate(names):
        rig.client.hset(f"dramatiq:{Q}.since", name, 1000 + n)
    rig.fetch("dead", idle=4)
    time.sleep(0.01)
    assert rig.broker.requeue_dead(0.001) == 4
    assert rig.ids() == names
