# ruff: noqa: ARG001, ARG005, PLW0108  # actors are called by keyword, fixtures by name
from __future__ import annotations

import json
import time
from itertools import pairwise
from statistics import median
from threading import Barrier, Event

import pytest
from structlog.contextvars import get_contextvars

from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.runtime.broker import Outgoing
from sluice_core.runtime.broker.middleware.log_context import LogContext
from sluice_core.runtime.broker.middleware.time_limit import final_guard
from sluice_core.runtime.broker.scripts import Scripts
from sluice_testing.waiting import PATIENCE, fastest, until

Q = "parse.default"
LANE_NAMES = ("critical", "high", "default", "low", "bulk")


def test_an_idle_worker_picks_up_at_once(rig):
    picked = {}
    rig.worker(lambda job: picked.setdefault(job, time.perf_counter()), threads=2)

    def slowest_of_twenty():
        took = []
        for n in range(60):
            name, began = f"m{len(picked)}", time.perf_counter()
            rig.publish(name, lane=LANE_NAMES[n % 5])
            until(lambda name=name: name in picked)
            took.append(picked[name] - began)
        return sorted(took)[int(0.95 * len(took))]

    assert fastest(slowest_of_twenty, below=0.1) < 0.1


def test_ids_arrive_by_name_as_they_were_sent(rig):
    got = []
    rig.worker(lambda **ids: got.append(ids))
    ids = {"job": "影片 🎬", "stage": "parse", "epoch": 3}
    rig.broker.publish("标识-🎉", "parse", Q, ids)
    until(lambda: got)
    assert got == [ids]
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)


def test_two_processes_of_one_thread_hoard_nothing(rig, gate):
    busy = rig.worker(gate)
    rig.broker.publish_many(
        [Outgoing(name, "parse", Q, {"job": name}) for name in ("first", "second")]
    )
    until(lambda: gate.started == ["first"])
    for lane in LANE_NAMES:
        rig.publish(lane, lane=lane)
    time.sleep(0.2)  # time in which a hoarder would fetch
    assert busy.running == {"first"}
    assert sum(rig.broker.waiting([f"parse.{lane}" for lane in LANE_NAMES]).values()) == 6
    got = []
    rig.worker(lambda job: got.append(job))
    until(lambda: len(got) == 6)
    assert got == ["critical", "high", "second", "default", "low", "bulk"]
    assert gate.started == ["first"]


def test_a_burst_reaches_all_idle_workers(rig):
    together = Barrier(4)
    met = []

    def meet(job):
        together.wait(PATIENCE)
        met.append(job)

    for _ in range(4):
        rig.worker(meet)
    rig.publish("a", "b", "c", "d")
    until(lambda: len(met) == 4)


@pytest.mark.usefixtures("only_when_woken")
def test_one_token_is_enough_for_many_workers(rig):
    together = Barrier(3)
    met = []

    def meet(job):
        together.wait(60)
        met.append(job)

    workers = [rig.worker(meet) for _ in range(3)]
    until(lambda: all(worker.last_beat_age is not None for worker in workers))
    time.sleep(0.1)
    with rig.client.pipeline() as pipe:  # three messages, one token
        for name in "abc":
            pipe.hset(f"dramatiq:{Q}.msgs", name, _message(name)).rpush(f"dramatiq:{Q}", name)
        pipe.rpush(f"dramatiq:__wake__.{Q}", "1").execute()
    until(lambda: len(met) == 3)


@pytest.mark.usefixtures("only_when_woken")
def test_a_thread_that_gets_free_takes_the_next_at_once(rig):
    ended = []
    rig.worker(lambda job: ended.append(time.perf_counter()), threads=1)
    rig.publish(*[f"m{n}" for n in range(50)])
    until(lambda: len(ended) == 50)
    # Whoever only looks for room now and then makes each of them wait.
    assert median(b - a for a, b in pairwise(ended)) < 0.5


@pytest.mark.usefixtures("only_when_woken")
def test_low_and_bulk_leave_one_slot(rig, gate):
    worker = rig.worker(gate, threads=3)
    rig.publish("l1", "l2", "l3", lane="low")
    rig.publish("b1", lane="bulk")
    until(lambda: len(gate.started) == 2)
    time.sleep(0.2)
    assert worker.running == {"l1", "l2"}
    rig.publish("d1")
    until(lambda: "d1" in gate.started)


@pytest.mark.usefixtures("only_when_woken")
def test_a_reserved_slot_that_gets_free_is_filled_at_once(rig):
    first, began = Event(), []

    def run(job):
        began.append(job)
        if job == "l1":
            first.wait(60)
        if job == "l2":
            assert first.wait(60)

    rig.worker(run, threads=2)
    rig.publish("l1", "l2", lane="low")
    until(lambda: began == ["l1"])
    time.sleep(0.2)  # the consumer waits at the server, for the unreserved lanes only
    first.set()
    until(lambda: began == ["l1", "l2"])


def test_one_slot_serves_all_lanes(rig):
    got = []
    rig.worker(lambda job: got.append(job))
    rig.publish("b", lane="bulk")
    until(lambda: got == ["b"])


def test_a_pool_of_bulk_alone_uses_all_slots(rig, gate):
    rig.worker(gate, threads=2, lanes=(Lane.BULK,))
    rig.publish("b1", "b2", lane="bulk")
    rig.publish("d1")
    until(lambda: sorted(gate.started) == ["b1", "b2"])
    assert rig.ids() == ["d1"]


@pytest.mark.parametrize("error", [StoreAwayError("no database"), RuntimeError("a bug")])
def test_a_message_whose_actor_raised_comes_again_behind_the_others(rig, error):
    got = []

    def run(job):
        got.append(job)
        if got == ["bad"]:
            raise error
        if job == "slow":
            time.sleep(0.6)

    rig.worker(run, requeue_pause=0.2)
    rig.publish("bad", "slow", "next")
    until(lambda: got == ["bad", "slow", "next", "bad"])
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)


def test_what_cannot_be_delivered_becomes_a_dead_letter_and_the_worker_goes_on(rig):
    got = []
    rig.worker(lambda job: got.append(job))
    rig.broker.publish("m1", "nobody", Q, {"job": "a"})
    unnamed = json.dumps({**json.loads(_message("m4")), "kwargs": [1]}).encode()
    for name, raw in (("m2", b"\xff\xfe not json"), ("m3", b"[1]"), ("m4", unnamed)):
        rig.client.hset(f"dramatiq:{Q}.msgs", name, raw)
        rig.client.rpush(f"dramatiq:{Q}", name)
    rig.publish("good")
    until(lambda: got == ["good"])
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)
    assert [reason.split(":")[0] for _, reason in rig.dead] == [
        "no such actor",
        *["unreadable message"] * 3,
    ]
    assert rig.dead[1][0] == b"\xff\xfe not json"


GOOD_ARGS = {"job": "a", "epoch": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"kwargs": {}},
        {"kwargs": {"job": "a"}},
        {"kwargs": {**GOOD_ARGS, "more": 1}},
        *(
            {"kwargs": {**GOOD_ARGS, "job": job}}
            for job in (7, None, "", "a\0b", "\ud800", "a" * 65)
        ),
        *({"kwargs": {**GOOD_ARGS, "epoch": epoch}} for epoch in ("1", 1.5, None, True, -1, 2**31)),
        *({"kwargs": {**GOOD_ARGS, "traceparent": place}} for place in (7, "a\0b", "a" * 513)),
        {"args": ["a", 1], "kwargs": {}},
        {"message_timestamp": "yesterday"},
        {"message_timestamp": 2**53},
    ],
    ids=str,
)
def test_what_no_actor_could_take_is_never_given_to_one(rig, change):
    given = []

    def run(job, epoch, traceparent=None):
        given.append((job, epoch, traceparent))

    rig.worker(run, requeue_pause=0.0)
    _place(rig, b"bad", {**json.loads(_message("bad")), "kwargs": GOOD_ARGS, **change})
    _place(rig, b"good", {**json.loads(_message("good")), "kwargs": GOOD_ARGS})
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)
    assert given == [("a", 1, None)]
    [(_, reason)] = rig.dead
    assert reason.startswith("unreadable message: ")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\0b", b"x" * 65], ids=repr)
def test_a_message_by_another_name_than_an_id_holds_up_nobody(rig, name):
    given = []
    worker = rig.worker(lambda job: given.append(job), threads=2, start=False)
    _place(rig, name, json.loads(_message("odd")))
    rig.publish("first", "second")
    worker.start()
    rig.stack.callback(worker.stop)
    until(lambda: sorted(given) == ["first", "second"])
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)
    assert [reason for _, reason in rig.dead] == ["unreadable message: its id is none"]
    until(lambda: not worker.running)
    assert worker.healthy().ok
    assert rig.broker.stats([Q])[Q].in_flight == 0


def _place(rig, name, message):
    """Into Redis by another hand than ours."""
    rig.client.hset(f"dramatiq:{Q}.msgs", name, json.dumps(message))
    rig.client.rpush(f"dramatiq:{Q}", name)


def test_a_dead_letter_that_could_not_be_recorded_is_not_lost(rig):
    tries = []

    def record(raw, reason):
        tries.append(raw)
        if len(tries) == 1:
            raise StoreAwayError("no database")

    rig.worker(lambda job: None, on_dead_letter=record)
    rig.broker.publish("m1", "nobody", Q, {"job": "a"})
    until(lambda: len(tries) == 2)
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)


def test_a_pause_keeps_messages_waiting_and_its_end_releases_them(rig):
    reason = ["the database is away"]
    got = []
    worker = rig.worker(lambda job: got.append(job), pause_reason=lambda: reason[0])
    until(lambda: worker.last_beat_age is not None)
    rig.publish("a")
    time.sleep(0.2)
    assert got == []
    assert rig.ids() == ["a"]
    assert worker.healthy().ok
    reason[0] = None
    until(lambda: got == ["a"])


def test_a_drain_returns_what_was_not_begun_and_tells_what_runs(rig):
    drain_event, began, told = Event(), Event(), Event()

    def run(job):
        began.set()
        assert drain_event.wait(60)
        told.set()

    worker = rig.worker(run, drain_event=drain_event)
    rig.publish("a", "b")
    assert began.wait(60)
    assert worker.drain(0.3)
    assert told.is_set()
    assert rig.ids() == ["b"]
    assert rig.broker.stats([Q])[Q].in_flight == 0
    rig.publish("c")
    time.sleep(0.2)
    assert rig.ids() == ["b", "c"]


def test_a_drain_lets_runs_finish_before_it_tells_them_to_hand_back(rig):
    drain_event, begun, told = Event(), Event(), []

    def run(job):
        begun.set()
        told.append(drain_event.wait(0.6))

    worker = rig.worker(run, drain_event=drain_event)
    rig.publish("a", "b")
    until(begun.is_set)
    assert worker.drain(PATIENCE)
    assert told == [False]
    assert rig.ids() == ["b"]


def test_a_second_signal_ends_the_grace(rig):
    drain_event, begun, told = Event(), Event(), []

    def run(job):
        begun.set()
        told.append(drain_event.wait(2 * PATIENCE))

    worker = rig.worker(run, drain_event=drain_event)
    rig.publish("a")
    assert begun.wait(60)
    began = time.monotonic()
    assert worker.drain(PATIENCE, hurry=lambda: time.monotonic() > began + 0.3)
    assert told == [True]
    assert time.monotonic() - began < PATIENCE


def test_a_message_handed_over_during_a_drain_is_not_begun(rig):
    got = []
    worker = rig.worker(lambda job: got.append(job), threads=2)
    until(lambda: worker.last_beat_age is not None)
    worker.broker.emit_before("worker_shutdown", worker)  # a fetch is under way at this moment
    rig.publish("a", "b")
    until(lambda: int(rig.client.hget(f"dramatiq:{Q}.tries", "b") or 0) >= 1)
    worker.drain(PATIENCE)
    assert got == []
    assert sorted(rig.ids()) == ["a", "b"]


def test_a_drain_waits_for_the_answer_of_a_fetch_under_way(rig, monkeypatch):
    given, fetch = Event(), Scripts.fetch

    def slow_answer(self, *args, **kwargs):
        rows = fetch(self, *args, **kwargs)
        if rows:
            given.set()
            time.sleep(0.3)
        return rows

    monkeypatch.setattr(Scripts, "fetch", slow_answer)
    got = []
    worker = rig.worker(lambda job: got.append(job), threads=2)
    rig.publish("a", "b")
    until(given.is_set)
    assert worker.drain(PATIENCE)
    assert got == []
    assert sorted(rig.ids()) == ["a", "b"]


def test_a_message_that_arrives_as_the_drain_begins_goes_back_to_the_front(rig):
    drain_event = Event()
    drain_event.set()
    got = []
    worker = rig.worker(lambda job: got.append(job), drain_event=drain_event, start=False)
    rig.publish(*"abcdefgh")
    worker.start()
    until(lambda: int(rig.client.hget(f"dramatiq:{Q}.tries", "a") or 0) >= 1)
    worker.drain(PATIENCE)
    worker.stop()
    assert got == []
    # Until it was drained it went on to fetch and to give back, the first ones again and again.
    came = {key.decode() for key in rig.client.hkeys(f"dramatiq:{Q}.tries")}
    ids = rig.ids()
    assert len(came) <= 3
    assert set(ids[: len(came)]) == came
    assert ids[len(came) :] == sorted(set("abcdefgh") - came)


def test_a_run_beyond_the_grace_stays_for_the_reaper(rig, gate):
    worker = rig.worker(gate)
    rig.publish("a", "b")
    until(lambda: gate.started)
    assert not worker.drain(0.3, hand_back_seconds=0)
    worker.stop(timeout=0.3)
    # Nobody waited for its end.
    assert gate.ended == []
    assert rig.broker.requeue_dead(60) == 0
    time.sleep(0.01)
    assert rig.broker.requeue_dead(0) == 1
    assert rig.ids() == ["a", "b"]
    assert rig.client.zcard("dramatiq:__heartbeats__") == 0


def test_a_worker_that_leaves_idle_leaves_nothing_behind(rig):
    got = []
    worker = rig.worker(lambda job: got.append(job), start=False)
    worker.start()
    rig.publish("a")
    until(lambda: got)
    assert worker.drain(PATIENCE)
    worker.stop(timeout=PATIENCE)
    assert rig.client.keys("*") == [b"dramatiq:__turns__.parse"]
    assert not any(thread.is_alive() for thread in worker.threads)


def test_a_dead_worker_thread_is_seen(rig):
    worker = rig.worker(lambda job: None, threads=2)
    assert worker.healthy().ok
    worker.threads[0].stop()
    worker.threads[0].join(60)
    assert not worker.healthy().ok
    assert worker.healthy().reason == "1 of 2 worker threads died"


def test_the_final_guard_ends_a_run_without_losing_thread_or_message(rig):
    tries = []

    def run(job):
        tries.append(job)
        if len(tries) == 1:
            deadline = time.monotonic() + 2 * PATIENCE
            while time.monotonic() < deadline:
                time.sleep(0.01)

    worker = rig.worker(run, middleware=(LogContext(), final_guard(0.3)), requeue_pause=0.1)
    rig.publish("a")
    until(lambda: tries == ["a", "a"])
    until(lambda: rig.client.exists(f"dramatiq:{Q}.msgs") == 0)
    assert worker.healthy().ok


def test_log_lines_of_a_run_name_its_message(rig):
    seen = []
    rig.worker(lambda **ids: seen.append(get_contextvars()), middleware=(LogContext(),))
    trace = "0af7651916cd43dd8448eb211c80319c"
    given = {"job": "a", "epoch": 2, "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    rig.broker.publish("m1", "parse", Q, given)
    rig.broker.publish("m2", "parse", Q, {"job": "b", "epoch": 0})
    until(lambda: len(seen) == 2)
    first, second = sorted(seen, key=lambda bound: bound["message_id"])
    assert first.pop("span_id") != "b7ad6b7169203331"
    expected = {"stage": "parse", "queue": Q, "message_id": "m1", "tries": 1}
    assert first == {**expected, "job": "a", "epoch": 2, "trace_id": trace}
    assert second["trace_id"] not in ("", trace)


def test_actors_do_not_take_each_others_messages(rig):
    parsed, settled = [], []
    rig.worker(lambda job: parsed.append(job))
    rig.worker(lambda job: settled.append(job), actor=Actor.SETTLE)
    rig.publish("p")
    rig.publish("s", actor="settle")
    until(lambda: (parsed, settled) == (["p"], ["s"]))


def test_an_idle_worker_is_idle(rig):
    worker = rig.worker(lambda job: None, threads=8)
    until(lambda: worker.last_beat_age is not None)

    def share():
        """Of a core."""
        began, before = time.monotonic(), time.process_time()
        time.sleep(2)
        return (time.process_time() - before) / (time.monotonic() - began)

    limit = 0.005  # measured 0.0007; polling five lanes takes ten times the limit
    assert fastest(share, below=limit) < limit


@pytest.mark.usefixtures("only_when_woken")
def test_a_slot_freed_by_a_run_that_raised_is_filled_at_once(rig):
    fail, began = Event(), []

    def run(job):
        began.append(job)
        if job == "l1":
            fail.wait(60)
            raise RuntimeError("a bug")

    rig.worker(run, threads=2, requeue_pause=2 * PATIENCE)
    rig.publish("l1", "l2", lane="low")
    until(lambda: began == ["l1"])
    time.sleep(0.2)  # the consumer waits at the server, for the unreserved lanes only
    fail.set()
    until(lambda: began == ["l1", "l2"])


@pytest.mark.usefixtures("only_when_woken")
def test_a_drain_hands_its_token_to_another_worker(rig, gate):
    draining = rig.worker(gate)
    rig.publish("a")
    until(lambda: gate.started == ["a"])
    got = []
    other = rig.worker(lambda job: got.append(job))
    until(lambda: other.last_beat_age is not None)
    time.sleep(0.1)
    rig.client.hset(f"dramatiq:{Q}.msgs", "b", _message("b"))  # with no token at all
    rig.client.rpush(f"dramatiq:{Q}", "b")
    draining.drain(0, hand_back_seconds=0)
    until(lambda: got == ["b"])


def _message(name):
    return json.dumps(
        {
            "queue_name": Q,
            "actor_name": "parse",
            "args": [],
            "kwargs": {"job": name},
            "options": {},
            "message_id": name,
            "message_timestamp": 0,
        }
    )
