"""A segment that is encoded is not encoded again: after kills, here and on another machine."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest

from sluice_core.adapters.storage import open_storage
from sluice_testing.outcome import assert_nothing_left
from sluice_testing.system import System, running, until

LONG = "/mp4/long.mp4"
#: A minute of media becomes five of these.
SECONDS = 12

PRESETS = """
[small]
title = "Small pictures"
kind = "video"
format = "b"
max_height = 90
containers = ["mp4"]
video_codecs = ["h264"]
audio_codecs = ["aac"]
video = { encoder = "libx264", crf = 30, speed = "veryfast" }
audio = { encoder = "aac", bitrate = 64 }
"""


@pytest.fixture
def env(site, tmp_path):
    presets = tmp_path / "presets.toml"
    presets.write_text(PRESETS)
    return {
        "SLUICE_EGRESS_ALLOW": site.url("").removeprefix("http://").rstrip("/"),
        "SLUICE_PRESETS_FILE": str(presets),
        "SLUICE_SEGMENT_SECONDS": str(SECONDS),
        # `test_helping.py` has those.
        "SLUICE_SEGMENT_HELPERS": "0",
        "SLUICE_FAILPOINTS_LOG": str(tmp_path / "passes"),
    }


def third(action):
    """A fault while the third segment of five is encoded."""
    return {"SLUICE_FAILPOINTS": f"transcode.mid_segment={action}*1/3"}


def lines(system, event):
    text = system.log.read_text()
    return [json.loads(line) for line in text.splitlines() if f'"{event}"' in line]


def encoded(*systems):
    """Number of a segment -> how often it was encoded to its end."""
    return Counter(line["number"] for s in systems for line in lines(s, "segment_encoded"))


def begun(tmp_path):
    """Segments of which something was encoded, over all runs."""
    path = tmp_path / "passes"
    return len(path.read_text().splitlines()) if path.exists() else 0


def outcomes(system):
    query = "SELECT outcome FROM attempts WHERE stage = 'transcode' ORDER BY number"
    return [outcome for (outcome,) in system.query(query)]


def segments(storage, job):
    return [key for key in storage.keys(f"work/{job['id']}/") if "/segments." in key]


def assert_each_once(tmp_path, *systems):
    assert encoded(*systems) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}
    # The third was begun twice.
    assert begun(tmp_path) == 6
    assert [line["kept"] for s in systems for line in lines(s, "encode_cut")] == [0, 2]
    assert not [line for s in systems for line in lines(s, "encoded_in_one_run")]


def test_a_killed_worker_costs_one_segment(tmp_path, site, env):
    with running(tmp_path / "data", **third("kill"), **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert outcomes(system) == ["lost", "ok"]
        assert_each_once(tmp_path, system)
        # What was put away blames nobody for the loss.
        assert system.query("SELECT losses FROM jobs") == [(0,)]
        assert_nothing_left(system, artifacts=1)


def test_a_drained_worker_hands_back_with_one_segment_to_repeat(tmp_path, site, env):
    grace = {"SLUICE_TRANSCODE_DRAIN_GRACE": "0.5"}
    with running(tmp_path / "data", **third("sleep:3"), **grace, **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(tmp_path) == 3, timeout=90)
        system.part("transcoder").terminate()
        [ended] = system.wait([job["id"]], timeout=180)
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert outcomes(system) == ["handed_back", "ok"]
        assert_each_once(tmp_path, system)
        assert_nothing_left(system, artifacts=1)


def test_a_cancel_in_the_middle_leaves_nothing(tmp_path, site, env):
    with running(tmp_path / "data", **third("sleep:2"), **env) as system:
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(tmp_path) == 3, timeout=90)
        assert len([key for key in system.stored("work/") if "/segments." in key]) == 2
        system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
        assert_nothing_left(system, artifacts=0)
        assert begun(tmp_path) == 3


def test_another_machine_goes_on_at_the_first_segment_that_is_not_done(tmp_path, site, shared):
    storage = open_storage(shared["SLUICE_STORAGE_URL"])
    first = System(tmp_path / "first", {**shared, **third("stop")})
    first.start()
    try:
        job = first.submit(site.url(LONG), preset="small")
        until(lambda: begun(tmp_path) == 3, timeout=120)
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
        assert_each_once(tmp_path, first, second)
        until(lambda: not list(storage.keys("work/")), timeout=30)
        assert len(list(storage.keys("files/"))) == 1
    finally:
        second.stop()
