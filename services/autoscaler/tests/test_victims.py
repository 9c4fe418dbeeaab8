"""Whom we choose, whom a ReplicaSet takes, and when both are sure to be the same."""

from __future__ import annotations

from typing import Any

import pytest

from sluice_autoscaler.cluster import DELETION_COST, Pod
from sluice_autoscaler.victims import choose, most_to_remove, removal_order


def pod(name: str, **fields: Any) -> Pod:
    cost = fields.pop("cost", None)
    usual: dict[str, Any] = {
        "assigned": True,
        "phase": "Running",
        "ready": True,
        "alive": True,
        "created": 100.0,
        "ready_at": 110.0,
        "restarts": 0,
        "annotations": {} if cost is None else {DELETION_COST: str(cost)},
    }
    return Pod(name=name, **(usual | fields))


def names(pods: list[Pod]) -> str:
    return "".join(p.name for p in pods)


def test_idle_before_busy_then_not_ready_then_the_newest() -> None:
    pods = [
        pod("a", created=1.0),
        pod("b", created=2.0),
        pod("c", created=3.0),
        pod("d", created=4.0),
        pod("e", created=0.0, ready=False),
        pod("f", created=9.0, ready=False),
    ]
    running = {"b": 1, "d": 2, "f": 1}
    assert names(choose(pods, running, 6)) == "ecafbd"
    assert names(choose(pods, running, 2)) == "ec"
    assert choose(pods, running, -1) == []


def test_the_order_of_a_replicaset() -> None:
    pods = [
        pod("k", created=1.0),
        pod("j", created=2.0),
        pod("i", restarts=3, created=1.0),
        pod("h", ready_at=120.0),
        pod("g", cost=-5),
        pod("e", cost=7, ready=False),
        pod("d", phase="Unknown"),
        pod("c", phase="Pending"),
        pod("b", phase="Pending", assigned=False),
        pod("l", cost=100),
        pod("m", cost="many"),
    ]
    assert names(removal_order(pods)) == "bcdeghimjkl"


GO = {"cost": -1000}


@pytest.mark.parametrize(
    ("pods", "replicas", "wanted", "safe", "count"),
    [
        # All that may go are the first to go.
        ([pod("a", **GO), pod("b", **GO), pod("c")], 3, 2, "ab", 2),
        # A busy pod that is not ready would be taken first.
        ([pod("a", **GO), pod("b", ready=False)], 2, 1, "a", 0),
        # An idle one that never began may.
        ([pod("a", **GO), pod("b", ready=False, alive=False)], 2, 1, "ab", 1),
        # One of two is told, the other's cost was not heard of yet.
        ([pod("a", **GO), pod("b"), pod("c")], 3, 2, "ab", 1),
        # Somebody else gave the same cost to another one.
        ([pod("a", **GO), pod("b", **GO), pod("c")], 3, 1, "a", 0),
        # What is not there yet goes without anybody's end.
        ([pod("a"), pod("b")], 5, 3, "", 3),
        ([pod("a"), pod("b")], 5, 4, "", 3),
        ([pod("a", **GO), pod("b")], 5, 4, "a", 4),
        # More pods than asked for: the rest of another change, which takes first.
        ([pod("a", **GO), pod("b"), pod("c")], 2, 1, "a", 0),
        ([], 0, 0, "", 0),
    ],
)
def test_no_more_than_is_sure(
    pods: list[Pod], replicas: int, wanted: int, safe: str, count: int
) -> None:
    assert most_to_remove(pods, replicas, wanted, set(safe)) == count
