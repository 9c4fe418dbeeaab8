from __future__ import annotations

import pytest

from sluice_core.domain.standby import HOLDS, WITHDRAWN, Standby, pod_of, worker_id


def test_a_mark_holds_until_it_is_withdrawn() -> None:
    known = Standby().seen("m1", 100.0)
    assert known.name == "m1"
    assert known.seen("m2", 101.0).name == "m2"
    assert known.seen(WITHDRAWN, 101.0).name == ""


def test_an_emptied_redis_wakes_nobody_and_neither_does_one_that_is_away() -> None:
    known = Standby().seen("m1", 100.0)
    assert known.seen(None, 100.0 + HOLDS).name == "m1"
    assert known.unseen(100.0 + HOLDS).name == "m1"


def test_a_mark_that_nobody_renews_lapses() -> None:
    known = Standby().seen("m1", 100.0)
    assert known.seen(None, 100.1 + HOLDS).name == ""
    assert known.unseen(100.1 + HOLDS).name == ""
    renewed = known.seen("m1", 150.0)
    assert renewed.seen(None, 100.1 + HOLDS).name == "m1"


@pytest.mark.parametrize("pod", ["media-downloader-7d9f-x2x9q", "host", "a-b-c-d-e"])
def test_a_worker_tells_its_pod(pod: str) -> None:
    assert pod_of(worker_id(pod, "download", 7, "01ABCD")) == pod
