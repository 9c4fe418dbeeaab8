"""One pool in slow motion: each turn is a call, workers answer by hand, time is a number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import redis as redis_library

from sluice_autoscaler.cluster import ClusterError, Fault
from sluice_autoscaler.config import AutoscalingConfig, BehaviorConfig, PoolConfig
from sluice_autoscaler.marks import Marks
from sluice_autoscaler.pool import Pool
from sluice_autoscaler.reading import Reading
from sluice_core.adapters import redis
from sluice_core.adapters.metrics import AutoscalerMetrics, render
from sluice_core.domain import keys
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.figures import QueueFigures

W = "workers"
AT_ONCE = BehaviorConfig(stabilization_window_seconds=0, policies=())


class Rig:
    """A pool on an API server that answers for real, with demand and workers by hand."""

    def __init__(self, cluster: Any, signals: redis_library.Redis, **rules: Any) -> None:
        self.cluster = cluster
        self.signals = signals
        self.rules = {"cooldown_seconds": 0, "scale_up": AT_ONCE, "scale_down": AT_ONCE} | rules
        self.metrics = AutoscalerMetrics()
        self.now = 1_000.0
        self.pool = self.new_pool()
        self.running: dict[str, int] = {}
        self.waiting = 0

    def new_pool(self) -> Pool:
        """As after a change of leader."""
        numbers = itertools.count(1)
        config = PoolConfig(
            deployment=W,
            stage=Actor.DOWNLOAD,
            concurrency=1,
            autoscaling=AutoscalingConfig(**self.rules),
        )
        tag = f"{id(self):x}-{self.now:.0f}"
        marks = Marks(self.signals, lambda: f"m{next(numbers)}-{tag}")
        return Pool("d", config, cluster=self.cluster.kube(), marks=marks, metrics=self.metrics)

    def turn(self, *, blind: bool = False, after: float = 5.0) -> None:
        self.now += after
        held = sum(self.running.values())
        figures = {
            queue: QueueFigures(0, 0, 0, 0, 0, 0, None) for queue in self.pool.config.queues
        } | {"download.default": QueueFigures(self.waiting, held, held, 0, 0, 0, None)}
        self.pool.turn(None if blind else Reading(figures, self.running), self.now)

    def answer(self, *pods: str) -> None:
        """These workers are quiet, and say so."""
        for pod in pods:
            name = self.signals.get(keys.standby(pod))
            assert name is not None
            self.signals.set(keys.standby_answer(pod), name)

    @property
    def replicas(self) -> int:
        found: int = self.cluster.replicas(W)
        return found


@pytest.fixture
def signals(redis_url: str) -> redis_library.Redis:
    return redis.connect(redis_url)


@pytest.fixture
def rig(cluster: Any, signals: redis_library.Redis) -> Rig:
    return Rig(cluster, signals)


def test_from_zero(rig: Rig) -> None:
    rig.cluster.workload(0)
    rig.turn()
    assert rig.replicas == 0
    rig.waiting = 4
    rig.turn(after=1.0)
    assert rig.replicas == 4


def test_shrinks_by_mark_answer_cost_and_only_then_the_number(rig: Rig) -> None:
    rig.cluster.workload(3)
    rig.running = {"p0": 1}
    rig.turn()
    # The idle ones are marked, and nothing is taken away.
    assert rig.cluster.marked() == ["p1", "p2"]
    assert rig.replicas == 3
    rig.turn()
    assert (rig.replicas, rig.cluster.cost("p1")) == (3, None)
    rig.answer("p1")
    rig.turn()
    # Answered: it gets the cost of one that may go. Whoever picks the pods may not know it yet.
    assert (rig.replicas, rig.cluster.cost("p1")) == (3, "-1000")
    rig.turn()
    assert rig.replicas == 2
    assert rig.cluster.cost("p0") == "100"


def test_a_busy_pod_that_is_not_ready_stops_every_reduction(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.cluster.pod("shaky", ready=False)
    rig.cluster.scale(W, 3)
    rig.cluster.settled()
    rig.running = {"shaky": 1}
    rig.turn()
    assert rig.cluster.marked() == ["p0", "p1"]
    rig.answer("p0", "p1")
    for _ in range(3):
        rig.turn()
    # A ReplicaSet would take it first, whatever the others cost.
    assert rig.replicas == 3


def test_demand_is_back_and_marks_are_given_up(rig: Rig) -> None:
    rig.cluster.workload(3)
    rig.turn()
    assert rig.cluster.marked() == ["p0", "p1", "p2"]
    rig.answer("p0", "p1", "p2")
    rig.turn()
    rig.waiting = 2
    rig.turn()
    assert rig.replicas == 3
    assert len(rig.cluster.marked()) == 1
    freed = next(p for p in ("p0", "p1", "p2") if p not in rig.cluster.marked())
    assert rig.signals.get(keys.standby(freed)) == "-"
    assert rig.cluster.annotations(freed) == {}
    # More than were marked: those come first, then new ones.
    rig.waiting = 5
    rig.turn()
    assert (rig.replicas, rig.cluster.marked()) == (5, [])


def test_an_answer_to_an_older_mark_proves_nothing(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.turn()
    rig.answer("p0")
    rig.waiting = 1
    rig.turn()
    assert rig.cluster.marked() == []
    rig.waiting = 0
    rig.turn()
    assert rig.cluster.marked() == ["p0"]
    for _ in range(3):
        rig.turn()
    assert (rig.replicas, rig.cluster.cost("p0")) == (1, None)


def test_a_leader_that_was_away_too_long_asks_again(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.turn()
    rig.answer("p0")
    first = rig.cluster.annotations("p0")["sluice.dev/standby"]
    # A worker gives a mark up that nobody renews: it may be busy by now.
    rig.turn(after=40.0)
    rig.turn()
    assert rig.cluster.annotations("p0")["sluice.dev/standby"] != first
    assert rig.replicas == 1


def test_a_new_leader_takes_marks_over_and_asks_again(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.running = {"p0": 1}
    rig.turn()
    rig.answer("p1")
    rig.pool = rig.new_pool()
    rig.turn()
    assert rig.cluster.marked() == ["p1"]
    assert rig.cluster.cost("p1") is None
    rig.answer("p1")
    rig.turn()
    rig.turn()
    assert rig.replicas == 1


def test_a_mark_that_a_person_took_away_is_withdrawn(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.cluster.annotate(W, hold="true")
    rig.cluster.store.merge(
        "pods", "p1", {"metadata": {"annotations": {"sluice.dev/standby": "x"}}}
    )
    rig.turn()
    assert rig.signals.get(keys.standby("p1")) not in {None, "-"}
    rig.cluster.store.merge(
        "pods", "p1", {"metadata": {"annotations": {"sluice.dev/standby": None}}}
    )
    rig.turn()
    assert rig.signals.get(keys.standby("p1")) == "-"


def test_a_failed_reading_moves_nothing(rig: Rig) -> None:
    rig.cluster.workload(3)
    rig.running = {"p0": 1, "p1": 1}
    rig.turn()
    rig.answer("p2")
    rig.turn()
    before = len(rig.cluster.api.requests)
    for _ in range(5):
        rig.turn(blind=True)
    assert (rig.replicas, len(rig.cluster.api.requests)) == (3, before)
    page = render([rig.metrics.registry], "")[0].decode()
    assert 'sluice_autoscaler_decisions_total{pool="d",reason="blind"} 5.0' in page


def test_blind_from_the_start_asks_nobody(rig: Rig) -> None:
    rig.cluster.workload(3)
    rig.turn(blind=True)
    assert rig.cluster.api.requests == []


def test_while_pods_are_being_replaced_nothing_shrinks_and_growth_goes_on(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.cluster.store.merge("deployments", W, {"status": {"updatedReplicas": 1}})
    rig.turn()
    assert (rig.cluster.marked(), rig.replicas) == ([], 2)
    rig.waiting = 4
    rig.turn()
    assert rig.replicas == 4


def test_pods_that_are_not_there_yet_go_first(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.cluster.scale(W, 6)
    rig.cluster.settled()
    rig.running = {"p0": 1, "p1": 1}
    rig.turn()
    assert (rig.replicas, rig.cluster.marked()) == (2, [])


def test_a_pod_that_never_began_needs_no_answer(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.cluster.pod("new", ready=False, alive=False)
    rig.cluster.scale(W, 2)
    rig.cluster.settled()
    rig.running = {"p0": 1}
    for _ in range(3):
        rig.turn()
    assert (rig.cluster.marked(), rig.replicas) == (["new"], 1)


def test_a_pod_that_is_about_to_go_keeps_its_mark_and_its_cost(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.running = {"p0": 1}
    rig.turn()
    rig.answer("p1")
    rig.turn()
    rig.turn()
    assert rig.replicas == 1
    # Nobody has taken it away yet, and there is more to do: by a new one, not by this one.
    rig.waiting = 1
    rig.turn()
    assert rig.cluster.cost("p1") == "-1000"
    assert rig.signals.get(keys.standby("p1")) != "-"
    assert rig.replicas == 2


def test_paused_goes_where_it_was_told_by_draining(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.cluster.annotate(W, paused_replicas="0")
    rig.running = {"p0": 1}
    rig.waiting = 9
    rig.turn()
    rig.answer("p1")
    rig.turn()
    rig.turn()
    # The busy one takes nothing new, and is not taken away.
    assert (rig.cluster.marked(), rig.replicas) == (["p0", "p1"], 1)
    rig.cluster.annotate(W, paused_replicas="5")
    rig.turn()
    assert rig.replicas == 5


def test_a_pool_of_somebody_elses_gets_true_costs_and_nothing_else(
    cluster: Any, signals: redis_library.Redis
) -> None:
    rig = Rig(cluster, signals, enabled=False)
    rig.cluster.workload(3)
    rig.running = {"p0": 2, "p1": 1}
    rig.waiting = 50
    rig.turn()
    assert [rig.cluster.cost(p) for p in ("p0", "p1", "p2")] == ["200", "100", None]
    assert (rig.replicas, rig.cluster.marked()) == (3, [])
    # What becomes idle is shown a while later: each change is a write.
    rig.running = {"p1": 1, "p2": 1}
    rig.turn()
    assert [rig.cluster.cost(p) for p in ("p0", "p1", "p2")] == ["200", "100", "100"]
    rig.turn()
    assert [rig.cluster.cost(p) for p in ("p0", "p1", "p2")] == [None, "100", "100"]


def test_a_pool_that_is_not_ours_any_more_has_no_marks(rig: Rig) -> None:
    rig.cluster.workload(2)
    rig.turn()
    assert rig.cluster.marked() == ["p0", "p1"]
    rig.rules["enabled"] = False
    rig.pool = rig.new_pool()
    rig.turn()
    assert rig.cluster.marked() == []
    assert [rig.signals.get(keys.standby(p)) for p in ("p0", "p1")] == ["-", "-"]


def test_a_conflict_is_left_to_the_next_turn(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.waiting = 3
    rig.cluster.fail(verb="update", resource="deployments/scale", status=409)
    with pytest.raises(ClusterError) as caught:
        rig.turn()
    assert caught.value.fault is Fault.CONFLICT
    rig.turn(after=1.0)
    assert rig.replicas == 3


def test_a_step_counts_once_it_is_made(cluster: Any, signals: redis_library.Redis) -> None:
    slow = BehaviorConfig.model_validate(
        {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    )
    rig = Rig(cluster, signals, scale_up=slow)
    rig.cluster.workload(1)
    rig.waiting = 9
    rig.cluster.fail(verb="update", resource="deployments/scale", status=500)
    with pytest.raises(ClusterError):
        rig.turn()
    rig.turn()
    assert rig.replicas == 2
    rig.turn()
    assert rig.replicas == 2


def test_a_quiet_pool_is_looked_at_every_five_seconds(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.running = {"p0": 1}
    for _ in range(20):
        rig.turn(after=1.0)
    assert len(rig.cluster.requests("get", "deployments")) == 4


def test_a_mark_that_is_not_shown_is_not_set(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.cluster.fail(verb="patch", resource="pods", status=403)
    with pytest.raises(ClusterError):
        rig.turn()
    assert rig.signals.get(keys.standby("p0")) is None


def test_marks_expire_and_answers_too(rig: Rig) -> None:
    rig.cluster.workload(1)
    rig.turn()
    assert 0 < int(rig.signals.ttl(keys.standby("p0"))) <= 60
    rig.waiting = 1
    rig.turn()
    # What is withdrawn is said for a while, and then forgotten.
    assert 0 < int(rig.signals.ttl(keys.standby("p0"))) <= 60


def test_costs_of_a_great_pool_are_written_over_several_turns(
    cluster: Any, signals: redis_library.Redis
) -> None:
    rig = Rig(cluster, signals, enabled=False)
    rig.cluster.workload(25)
    rig.running = {f"p{number}": 1 for number in range(25)}
    rig.turn()
    assert len(rig.cluster.requests("patch", "pods")) == 20
    rig.turn()
    assert len(rig.cluster.requests("patch", "pods")) == 25
