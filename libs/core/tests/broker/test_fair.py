"""Owners of bulk work take turns, however much one of them has."""

from __future__ import annotations

from threading import Lock

import pytest

from sluice_core.domain.lanes import Lane
from sluice_core.runtime.broker import Outgoing
from sluice_core.runtime.broker.scripts import Scripts, Settle
from sluice_testing.waiting import until

Q = "parse.bulk"


@pytest.fixture
def publish(rig):
    def publish(owner, *names):
        return rig.broker.publish_many(
            [Outgoing(name, "parse", Q, {"job": name}, owner=owner) for name in names]
        )

    return publish


@pytest.fixture
def fetch(rig):
    def fetch(idle, worker_id="w"):
        return [row[1] for row in rig.fetch(worker_id, idle=idle, lanes=[(Q, True)])]

    return fetch


def test_a_second_submitter_waits_for_one_turn_only(publish, fetch):
    publish("a", *[f"a{n:03}" for n in range(200)])
    assert fetch(3) == ["a000", "a001", "a002"]
    publish("b", "b0", "b1")
    assert fetch(5) == ["a003", "b0", "a004", "b1", "a005"]


def test_each_owner_keeps_its_own_order(publish, fetch):
    publish("a", "a0", "a1", "a2")
    publish("b", "b0", "b1", "b2")
    publish("c", "c0")
    taken = fetch(9)
    assert [name for name in taken if name[0] == "a"] == ["a0", "a1", "a2"]
    assert sorted(taken[:3]) == ["a0", "b0", "c0"]
    assert sorted(taken[3:5]) == ["a1", "b1"]


def test_absence_is_not_saved_up(publish, fetch):
    publish("a", *[f"a{n:02}" for n in range(40)])
    fetch(20)
    publish("b", *[f"b{n:02}" for n in range(20)])
    assert [name[0] for name in fetch(10)].count("a") == 5


def test_what_comes_back_comes_first(rig, publish, fetch):
    publish("a", "a0", "a1", "a2")
    publish("b", "b0")
    assert fetch(2, "gone") == ["a0", "b0"]
    rig.broker.scripts.settle("gone", Settle.FRONT, Q, "b0", nudge=False)
    rig.broker.scripts.settle("gone", Settle.FRONT, Q, "a0", nudge=False)
    assert sorted(fetch(2)) == ["a0", "b0"]
    assert fetch(2) == ["a1", "a2"]


def test_what_was_tried_goes_behind_its_owners_others(rig, publish, fetch):
    publish("a", "a0", "a1")
    fetch(1)
    rig.broker.scripts.settle("w", Settle.BACK, Q, "a0", nudge=False)
    assert fetch(2) == ["a1", "a0"]


def test_places_removal_and_depth_agree_with_the_turns(rig, publish, fetch):
    publish("a", "a0", "a1", "a2")
    publish("b", "b0")
    sights = rig.broker.sights([(Q, name) for name in ("a0", "b0", "a1", "a2")])
    assert [sight.before for sight in sights] == [0, 1, 2, 3]
    assert rig.client.llen(f"dramatiq:{Q}") == 4
    assert rig.broker.remove(Q, "b0")
    assert not rig.broker.remove(Q, "b0")
    assert publish("a", "a1") == [False]
    rig.client.hdel(f"dramatiq:{Q}.msgs", "a1")
    assert fetch(9) == ["a0", "a2"]


def test_nothing_stays_once_all_is_done(rig, publish, fetch):
    publish("a", "a0", "a1")
    publish("b", "b0")
    for name in fetch(3):
        rig.broker.scripts.settle("w", Settle.ACK, Q, name, nudge=False)
    rig.broker.scripts.leave("w", [Q])
    assert rig.client.keys("*") == [b"dramatiq:__turns__.parse"]


@pytest.fixture
def handed_out(monkeypatch):
    """Ids in the order in which the broker gave them to anybody."""
    found, one_at_a_time, fetch = [], Lock(), Scripts.fetch

    def noting(scripts, *args, **kwargs):
        with one_at_a_time:
            rows = fetch(scripts, *args, **kwargs)
            found.extend(name for _, name, _, _ in rows)
        return rows

    monkeypatch.setattr(Scripts, "fetch", noting)
    return found


def test_two_busy_workers_a_full_low_lane_and_a_second_submitter(rig, gate, handed_out):
    """C2: long jobs, one thread each; what is freed takes the highest lane, bulk in turns."""
    workers = [rig.worker(gate, lanes=tuple(Lane)) for _ in range(2)]
    rig.publish("l0", "l1", lane="low")
    until(lambda: len(gate.started) == 2)
    rig.publish(*[f"l{n}" for n in range(2, 30)], lane="low")
    for owner in "ab":
        names = [f"{owner}{n}" for n in range(10 if owner == "a" else 2)]
        rig.broker.publish_many(
            [Outgoing(name, "parse", Q, {"job": name}, owner=owner) for name in names]
        )
    rig.publish("d", "e")
    rig.publish("h", lane="high")
    rig.publish("c", lane="critical")
    assert all(len(worker.running) == 1 for worker in workers)
    gate.open.set()
    until(lambda: len(gate.ended) == 46)
    lower = [f"l{n}" for n in range(2, 30)]
    bulk = ["a0", "b0", "a1", "b1", *(f"a{n}" for n in range(2, 10))]
    assert handed_out[2:] == ["c", "h", "d", "e", *lower, *bulk]
