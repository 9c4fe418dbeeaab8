"""The rules of the atomic fetch, one call at a time."""

from __future__ import annotations

import pytest

LANES = tuple(
    (f"parse.{lane}", lane in ("low", "bulk"))
    for lane in ("critical", "high", "default", "low", "bulk")
)


@pytest.fixture
def fetch(rig):
    def fetch(idle, worker_id="w", **rules):
        return [row[1] for row in rig.fetch(worker_id, idle=idle, lanes=LANES, **rules)]

    return fetch


def age(rig, lane, message_id, seconds):
    key = f"dramatiq:parse.{lane}.since"
    rig.client.hset(key, message_id, int(rig.client.hget(key, message_id)) - seconds * 1000)


def test_highest_lane_first_and_in_order_within_a_lane(rig, fetch):
    for lane in ("bulk", "low", "default", "high", "critical"):
        rig.publish(f"{lane}1", f"{lane}2", lane=lane)
    order = ["critical1", "critical2", "high1", "high2", "default1", "default2", "low1", "low2"]
    assert fetch(3) == order[:3]
    assert fetch(5) == order[3:]


def test_reserved_lanes_take_no_more_than_their_room(rig, fetch):
    rig.publish("l1", "l2", "l3", lane="low")
    rig.publish("b1", lane="bulk")
    assert fetch(4, room=2) == ["l1", "l2"]
    rig.publish("d1")
    assert fetch(4, room=0) == ["d1"]
    assert fetch(4, room=2) == ["l3", "b1"]


def test_a_starved_lane_gets_one_slot_in_ten(rig, fetch):
    rig.publish(*[f"h{n:02}" for n in range(40)], lane="high")
    rig.publish(*[f"b{n}" for n in range(4)], lane="bulk")
    for n in range(4):
        age(rig, "bulk", f"b{n}", 61)
    taken = [fetch(1, room=1)[0] for _ in range(30)]
    assert [i for i, name in enumerate(taken) if name.startswith("b")] == [9, 19, 29]


def test_a_lane_that_waited_less_gets_nothing_ahead_of_its_turn(rig, fetch):
    rig.publish(*[f"h{n:02}" for n in range(20)], lane="high")
    rig.publish("b", lane="bulk")
    age(rig, "bulk", "b", 50)
    assert "b" not in fetch(20)


def test_the_oldest_of_several_starved_lanes_comes_first(rig, fetch):
    rig.publish(*[f"h{n:02}" for n in range(40)], lane="high")
    rig.publish("d")
    rig.publish("b", lane="bulk")
    age(rig, "default", "d", 70)
    age(rig, "bulk", "b", 80)
    taken = fetch(25)
    assert taken.index("b") == 9
    assert taken.index("d") == 19


def test_a_starved_lane_keeps_to_its_reserve(rig, fetch):
    rig.publish(*[f"h{n:02}" for n in range(20)], lane="high")
    rig.publish("b", lane="bulk")
    age(rig, "bulk", "b", 61)
    assert "b" not in fetch(20, room=0)


def test_a_removed_message_is_no_slot(rig, fetch):
    rig.publish("a", "b")
    rig.client.hdel("dramatiq:parse.default.msgs", "a")
    assert fetch(1) == ["b"]


def test_tokens_are_capped_and_gone_with_the_last_message(rig, fetch):
    rig.publish(*[f"m{n}" for n in range(500)])
    key = "dramatiq:__wake__.parse.default"
    assert rig.client.llen(key) == 64
    fetch(499)
    assert rig.client.llen(key) > 0
    fetch(1)
    assert rig.client.exists(key) == 0


def test_whoever_leaves_messages_behind_wakes_the_next(rig, fetch):
    rig.publish("a", "b")
    rig.client.delete("dramatiq:__wake__.parse.default")
    fetch(1)
    assert rig.client.llen("dramatiq:__wake__.parse.default") == 1
