"""Load comes, the pool grows; load goes, it shrinks; and nothing that runs is ever interrupted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice_testing.system import until
from tests.scale.rig import POOL, Rig

#: 16 jobs of 20 to 150 s for 6 pods, ten times as fast. A stock autoscaler killed 6 of them.
SIXTEEN = [15.0, 2.0, 9.0, 3.0, 12.0, 4.0, 6.0, 2.0, 10.0, 5.0, 3.0, 13.0, 2.0, 7.0, 4.0, 8.0]

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def test_sixteen_jobs_on_six_pods_all_end_and_none_is_interrupted(
    new_rig: Callable[..., Rig],
) -> None:
    rig = new_rig()
    rig.start()
    rig.autoscale()
    until(lambda: rig.said("leads"), timeout=30)
    rig.submit(SIXTEEN)
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, rig.cluster.replicas(POOL))
        return rig.done() == 16

    until(all_done, timeout=120)
    rig.wait_pods(0)
    assert most == 6
    assert rig.outcomes() == {"ok": 16}
    assert [pod for pod in rig.cluster.ended if pod.exit_code or pod.killed] == []


def test_without_draining_the_same_trace_is_interrupted(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    rig.start()
    # As stock autoscalers: what runs is no demand of its own, and anybody may go.
    rig.autoscale(SLUICE_AUTOSCALER_DRAIN="false")
    until(lambda: rig.said("leads"), timeout=30)
    rig.submit(SIXTEEN)
    until(lambda: rig.outcomes()["handed_back"], timeout=120, why="none was interrupted")
