"""A segment that is encoded is not encoded again: after kills, here and on another machine."""

from __future__ import annotations

import shutil

import pytest

from sluice_core.adapters.storage import open_storage
from sluice_testing.encodes import LONG
from sluice_testing.outcome import assert_nothing_left
from sluice_testing.system import System, running, until

#: A minute of media becomes five of these.
SECONDS = 12


@pytest.fixture
def env(encodes):
    # `test_helping.py` has those who help.
    return {**encodes, "SLUICE_SEGMENT_SECONDS": str(SECONDS), "SLUICE_SEGMENT_HELPERS": "0"}


def third(action):
    """A fault while the third segment of five is encoded."""
    return {"SLUICE_FAILPOINTS": f"transcode.mid_segment={action}*1/3"}


def segments(storage, job):
    return [key for key in storage.keys(f"work/{job['id']}/") if "/segments." in key]


def begun(said):
    return said.begun()["transcode.mid_segment"]


def assert_each_once(said):
    assert said.encoded() == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}
    # The third was begun twice.
    assert begun(said) == 6
    assert sorted(line["kept"] for line in said.lines("encode_cut")) == [0, 2]
    assert not said.lines("encoded_in_one_run")


def test_a_killed_worker_costs_one_segment(tmp_path, site, env, said):
    with running(tmp_path / "data", **third("kill"), **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert system.outcomes(job, "transcode") == ["lost", "ok"]
        assert_each_once(said)
        # What was put away blames nobody for the loss.
        assert system.query("SELECT losses FROM jobs") == [(0,)]
        assert_nothing_left(system, artifacts=1)


def test_a_drained_worker_hands_back_with_one_segment_to_repeat(tmp_path, site, env, said):
    grace = {"SLUICE_TRANSCODE_DRAIN_GRACE": "0.5"}
    with running(tmp_path / "data", **third("sleep:3"), **grace, **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(said) == 3)
        system.part("transcoder").terminate()
        [ended] = system.wait([job["id"]], timeout=180)
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert system.outcomes(job, "transcode") == ["handed_back", "ok"]
        assert_each_once(said)
        assert_nothing_left(system, artifacts=1)


def test_a_cancel_in_the_middle_leaves_nothing(tmp_path, site, env, said):
    with running(tmp_path / "data", **third("sleep:2"), **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(said) == 3)
        assert len([key for key in system.stored("work/") if "/segments." in key]) == 2
        system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
        assert_nothing_left(system, artifacts=0)
        assert begun(said) == 3


def test_another_machine_goes_on_at_the_first_segment_that_is_not_done(
    tmp_path, site, shared, said
):
    storage = open_storage(shared["SLUICE_STORAGE_URL"])
    first = System(tmp_path / "first", {**shared, **third("stop")})
    first.start()
    try:
        job = first.submit(site.url(LONG), preset="small")
        until(lambda: begun(said) == 3, timeout=120)
        assert len(segments(storage, job)) == 2
    finally:
        first.kill_all()
    log = first.log.read_text()
    shutil.rmtree(first.data)
    first.data.mkdir()
    first.log.write_text(log)
    second = System(tmp_path / "second", {**shared, **third("log")})
    second.start()
    try:
        [ended] = second.wait([job["id"]], timeout=180)
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert_each_once(said)
        until(lambda: not list(storage.keys("work/")))
        assert len(list(storage.keys("files/"))) == 1
    finally:
        second.stop()
