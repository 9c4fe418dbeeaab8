"""Who acts: one at a time, by a Lease that is really written and refused."""

from __future__ import annotations

from typing import Any

import pytest

from sluice_autoscaler.cluster import ClusterError
from sluice_autoscaler.elector import KubernetesElector

Two = tuple[KubernetesElector, KubernetesElector]


def elector(cluster: Any, holder: str) -> KubernetesElector:
    return KubernetesElector(cluster.kube(), name="x", holder=holder, patience=10.0)


@pytest.fixture
def two(cluster: Any) -> Two:
    return elector(cluster, "a"), elector(cluster, "b")


def test_the_first_leads_and_the_other_watches(
    two: Two,
) -> None:
    first, second = two
    for now in range(100, 160):
        first.turn(float(now))
        second.turn(float(now))
        assert (first.leads(now), second.leads(now)) == (True, False)


def test_a_silent_one_is_followed_after_it_has_stopped_by_itself(
    two: Two,
) -> None:
    first, second = two
    first.turn(100.0)
    taken = None
    for tenth in range(1000, 1300):
        now = tenth / 10
        second.turn(now)
        if taken is None and second.leads(now):
            taken = now
        # The first one turns no more, and asks itself before it acts.
        assert not (first.leads(now) and second.leads(now))
    assert taken is not None
    assert 109.0 <= taken <= 112.0


def test_a_frozen_one_does_not_act_when_it_wakes_up(
    two: Two,
) -> None:
    first, second = two
    first.turn(100.0)
    for now in range(100, 130):
        second.turn(float(now))
    assert not first.leads(130.0)
    first.turn(130.0)
    assert not first.leads(130.0)
    assert second.leads(130.0)


def test_who_lost_the_lease_without_knowing_is_refused(two: Two, cluster: Any) -> None:
    first, _ = two
    first.turn(100.0)
    # As if clocks had been far apart: the other one took it at once.
    kube = cluster.kube()
    kube.write_lease("x", "b", duration=10, over=kube.lease("x"))
    assert first.leads(101.0)
    first.turn(103.0)
    assert not first.leads(103.0)


def test_who_did_not_look_can_not_judge(two: Two) -> None:
    first, second = two
    first.turn(100.0)
    second.turn(100.0)
    # The second one slept, and the first beat all the while but for the last moment.
    first.turn(190.0)
    second.turn(199.0)
    second.turn(200.0)
    assert not second.leads(200.0)


def test_one_that_ends_is_followed_at_once(
    two: Two,
) -> None:
    first, second = two
    first.turn(100.0)
    second.turn(100.0)
    first.give_back()
    second.turn(101.0)
    assert second.leads(101.0)


def test_an_outage_is_no_reason_to_act(two: Two, cluster: Any) -> None:
    first, _ = two
    first.turn(100.0)
    cluster.stop_server()
    for now in (102.0, 104.0, 106.0):
        with pytest.raises(ClusterError):
            first.turn(now)
    assert not first.leads(106.1)
    cluster.start_server()
    first.turn(107.0)
    for now in range(108, 122):
        first.turn(float(now))
    assert first.leads(121.0)


def test_both_at_once(cluster: Any) -> None:
    leaders = [
        KubernetesElector(cluster.kube(), name="x", holder=f"h{n}", patience=10.0) for n in range(6)
    ]
    seen = cluster.kube().lease("x")
    assert seen is None
    for leader in leaders:
        leader._write(None, 100.0)  # noqa: SLF001  # all of them saw none
    assert sum(leader.leads(100.0) for leader in leaders) == 1
