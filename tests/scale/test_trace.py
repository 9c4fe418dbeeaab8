"""Load comes, the pool grows; load goes, it shrinks; and nothing that runs is ever interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sluice_core.domain import keys
from sluice_testing.waiting import until
from tests.scale.rig import POOL, Rig, chart_role

#: 16 jobs of 20 to 150 s for 6 pods, ten times as fast. A stock autoscaler killed 6 of them.
SIXTEEN = [15.0, 2.0, 9.0, 3.0, 12.0, 4.0, 6.0, 2.0, 10.0, 5.0, 3.0, 13.0, 2.0, 7.0, 4.0, 8.0]

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def test_sixteen_jobs_on_six_pods_all_end_and_none_is_interrupted(
    new_rig: Callable[..., Rig],
) -> None:
    rig = new_rig()
    # With the rights that the chart gives, and no others.
    rig.cluster.allow(*chart_role())
    rig.start()
    rig.autoscale()
    until(lambda: rig.said("leads"), timeout=120)
    rig.submit(SIXTEEN)
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, rig.cluster.replicas(POOL))
        rig.make_the_busy_newest()
        return rig.done() == 16

    until(all_done, timeout=120)
    rig.wait_pods(0)
    assert most == 6
    assert rig.outcomes() == {"ok": 16}
    assert [pod for pod in rig.cluster.ended if pod.exit_code or pod.killed] == []
    assert rig.said("cluster_failed") == []


def test_without_draining_the_same_trace_is_interrupted(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    rig.start()
    # As stock autoscalers: what runs is no demand of its own, and anybody may go.
    rig.autoscale(SLUICE_AUTOSCALER_DRAIN="false")
    until(lambda: rig.said("leads"), timeout=120)
    rig.submit(SIXTEEN)

    def interrupted() -> int:
        rig.make_the_busy_newest()
        return rig.outcomes()["handed_back"]

    until(interrupted, timeout=120, why="none was interrupted")


def test_runs_that_are_spread_thin_end_before_their_pod_goes(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(slots=2)
    rig.start(replicas=3)
    rig.wait_pods(3)
    rig.cluster.annotate(POOL, hold="true")
    rig.autoscale()
    until(lambda: rig.said("leads"), timeout=120)
    rig.submit([600.0] * 6)
    until(lambda: sorted(map(len, rig.runs_of_pods().values())) == [2, 2, 2])
    # One of the two ends in each pod, which then has one slot too many.
    for first, _second in rig.runs_of_pods().values():
        rig.hurry(first)
    until(lambda: rig.outcomes() == {"ok": 3, None: 3})
    assert len(rig.busy_pods()) == 3
    rig.cluster.annotate(POOL, hold=None)
    # Two pods have slots enough: the third is told to take no more, and is left to end its run.
    until(lambda: rig.said("marked"), timeout=120)
    (marked,) = rig.said("marked")[0]["pods"]
    until(lambda: rig.signals.exists(keys.standby(marked)), timeout=120)
    time.sleep(4.0)
    assert rig.cluster.replicas(POOL) == 3
    rig.hurry()
    rig.wait_done(6)
    rig.wait_pods(0)
    assert rig.outcomes() == {"ok": 6}
