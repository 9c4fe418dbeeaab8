"""Slots with nothing else to do encode segments of a long encode; whatever becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, nullcontext

import psutil
import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.adapters.storage import open_storage
from sluice_testing.outcome import assert_nothing_left
from sluice_testing.process import bound
from sluice_testing.system import running, until

LONG = "/mp4/long.mp4"
#: A minute of media becomes ten of these.
SECONDS = 6
SEGMENTS = 10
FRAMES = 1500

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

[slow]
title = "Pictures that take their time"
kind = "video"
format = "b"
max_height = 160
containers = ["mp4"]
video_codecs = ["h264"]
audio_codecs = ["aac"]
video = { encoder = "libx264", crf = 20, speed = "placebo" }
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
        # The run itself takes the only slot of its process.
        "SLUICE_TRANSCODE_CONCURRENCY": "1",
        "SLUICE_FAILPOINTS_LOG": str(tmp_path / "passes"),
    }


def points(**actions):
    """Faults or delays while a segment is encoded: by the run itself, or by who helps."""
    names = {"own": "transcode.mid_segment", "help": "help.mid_segment"}
    rules = [f"{names[who]}={action}" for who, action in actions.items()]
    return {"SLUICE_FAILPOINTS": ",".join(rules)}


@contextmanager
def helping(system, env, *, data=None, lanes="bulk", **more):
    """A second transcoder; it takes no job of its own unless its lanes say so."""
    stores = (
        {} if data else {"SLUICE_REDIS_URL": f"unix://{next(system.data.rglob('*.sock'))}?db=0"}
    )
    settings = {
        "SLUICE_DATA_DIR": str(data or system.data),
        "SLUICE_LOG_FORMAT": "json",
        **stores,
        **env,
        "SLUICE_TRANSCODE_LANES": lanes,
        **more,
    }
    log = system.data.parent / "helper.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            bound([sys.executable, "-m", "sluice_transcoder"]),
            env={**os.environ, **settings},
            stdout=out,
            stderr=out,
        )
    try:
        until(lambda: "worker_ready" in log.read_text(), timeout=90, why=log.read_text())
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)


def lines(system, event):
    logs = (system.log, system.data.parent / "helper.log")
    texts = [log.read_text() for log in logs if log.exists()]
    found = (line for text in texts for line in text.splitlines() if f'"{event}"' in line)
    return [json.loads(line) for line in found]


def encoded(system, stage=None):
    """Number of a segment -> how often it was encoded to its end, by the run itself or by help."""
    found = lines(system, "segment_encoded")
    return Counter(line["number"] for line in found if stage in (None, line["stage"]))


def begun(tmp_path):
    path = tmp_path / "passes"
    return Counter(path.read_text().split() if path.exists() else [])


def probed(path):
    ran = subprocess.run(
        [
            *(ffmpeg_tools().ffprobe, "-v", "error", "-count_packets", "-of", "json"),
            *("-show_entries", "stream=codec_type,nb_read_packets,duration,start_time"),
            path,
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return {stream["codec_type"]: stream for stream in json.loads(ran.stdout)["streams"]}


def assert_as_one_run(system, job, tmp_path):
    assert (job["status"], job["error"], job["attempt"]) == ("SUCCESS", None, 1)
    made = tmp_path / "made.mp4"
    made.write_bytes(system.download(job))
    streams = probed(made)
    assert int(streams["video"]["nb_read_packets"]) == FRAMES
    assert float(streams["video"]["duration"]) == pytest.approx(60, abs=0.04)
    assert float(streams["audio"]["duration"]) == pytest.approx(60, abs=0.05)
    starts = [float(stream["start_time"]) for stream in streams.values()]
    assert starts == pytest.approx([0, 0], abs=0.03)
    assert not lines(system, "encoded_in_one_run")


def assert_no_trace(system, *, artifacts):
    """Nothing of those who helped: no row that waits, no claim, no file, no dead letter."""
    assert system.query("SELECT count(*) FROM segments") == [(0,)]
    assert system.query("SELECT count(*) FROM outbox") == [(0,)]
    assert system.query("SELECT count(*) FROM dead_letters") == [(0,)]
    until(
        lambda: system.query("SELECT count(*) FROM attempts WHERE ended_at IS NULL") == [(0,)],
        timeout=30,
    )
    assert_nothing_left(system, artifacts=artifacts)


def test_two_processes_share_an_encode(tmp_path, site, env):
    slow = points(own="sleep:1", help="sleep:1")
    with running(tmp_path / "data", **env, **slow) as system, helping(system, {**env, **slow}):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, tmp_path)
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        assert len(encoded(system, "help")) >= 3
        assert len(encoded(system, "transcode")) >= 3
        assert system.outcomes(job, "transcode") == ["ok"]
        assert set(system.outcomes(job, "help")) <= {"ok", "canceled"}
        assert_no_trace(system, artifacts=1)


def own(system):
    """Processes below a worker that encode."""
    return [p for p in psutil.Process(system).children(recursive=True) if "ffmpeg" in p.name()]


def test_a_killed_helper_costs_its_segment_and_no_try(tmp_path, site, env):
    slow = points(own="sleep:0.5")
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, {**env, **points(help="kill*1/2")}) as helper,
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert helper.wait(10) == -signal.SIGKILL
        assert_as_one_run(system, ended, tmp_path)
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        assert len(encoded(system, "help")) == 1
        assert begun(tmp_path)["help.mid_segment"] == 2
        assert system.outcomes(job, "transcode") == ["ok"]
        # The run took the segment back and may end before anyone misses who had it.
        until(lambda: system.outcomes(job, "help") == ["lost"], timeout=30)
        assert system.query("SELECT losses, tries FROM jobs") == [(0, 1)]
        assert_no_trace(system, artifacts=1)


def test_a_killed_run_costs_one_segment_and_its_helper_goes_on(tmp_path, site, env):
    faults = points(own="kill*1/2", help="sleep:1.5")
    with running(tmp_path / "data", **env, **faults) as system, helping(system, {**env, **faults}):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, tmp_path)
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        # One was begun twice: that of the run that was lost.
        assert sum(begun(tmp_path).values()) == SEGMENTS + 1
        assert system.outcomes(job, "transcode") == ["lost", "ok"]
        assert set(system.outcomes(job, "help")) <= {"ok", "canceled"}
        # The helper was at it all the time that nobody else was.
        assert len(encoded(system, "help")) >= 5
        assert_no_trace(system, artifacts=1)


def test_a_paused_helper_that_wakes_late_changes_nothing(tmp_path, site, env, postgres_url):
    # SQLite has one lock for all writers: one that is paused while it has it pauses them all.
    env["SLUICE_DATABASE_URL"] = postgres_url
    slow = points(own="sleep:1")
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, {**env, **points(help="stop*1/2")}) as helper,
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert psutil.Process(helper.pid).status() == psutil.STATUS_STOPPED
        assert_as_one_run(system, ended, tmp_path)
        taken_back = lines(system, "segment_taken_back")
        assert system.outcomes(job, "help") == ["lost"] or taken_back
        [file] = ended["files"]
        rows = system.query("SELECT id, epoch, tries, status FROM jobs")
        helper.send_signal(signal.SIGCONT)
        until(lambda: lines(system, "help_ended"), timeout=30)
        assert system.query("SELECT id, epoch, tries, status FROM jobs") == rows
        assert system.job(job["id"])["files"] == [file]
        assert set(system.outcomes(job, "help")) <= {"lost", "canceled"}
        assert_no_trace(system, artifacts=1)


@contextmanager
def hung(process):
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.parametrize("redis", ["there", "away"])
def test_a_cancel_stops_all_who_encode(tmp_path, site, env, redis):
    with running(tmp_path / "data", **env) as system, helping(system, env) as helper:
        workers = (system.part("transcoder").pid, helper.pid)
        job = system.submit(site.url(LONG), preset="slow")
        until(lambda: all(own(pid) for pid in workers), timeout=90)
        with hung(system.part("redis")) if redis == "away" else nullcontext():
            asked = time.monotonic()
            system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
            until(lambda: not any(own(pid) for pid in workers), timeout=10, every=0.02)
            assert time.monotonic() - asked < 2.0
            assert system.job(job["id"])["status"] == "CANCELED"
        until(lambda: lines(system, "help_ended"), timeout=20)
        assert system.outcomes(job, "help") == ["canceled"]
        assert_no_trace(system, artifacts=0)


def test_a_job_that_comes_while_all_slots_help_waits_for_one_segment(tmp_path, site, env):
    slow = points(own="sleep:1.5", help="sleep:1.5")
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, {**env, **slow}, lanes="high,bulk"),
    ):
        long = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(tmp_path)["help.mid_segment"], timeout=90)
        urgent = system.submit(site.url("/mp4/small.mp4"), preset="original", priority="high")
        query = "SELECT waiting_for FROM jobs WHERE id = :id AND stage = 'transcode'"
        until(lambda: system.query(query, id=urgent["id"]), timeout=30, every=0.02)
        before = len(encoded(system, "help"))
        [ended] = system.wait([urgent["id"]], timeout=60)
        assert ended["status"] == "SUCCESS"
        assert len(encoded(system, "help")) - before <= 1
        assert system.job(long["id"])["status"] == "MERGING"
        [ended] = system.wait([long["id"]], timeout=180)
        assert_as_one_run(system, ended, tmp_path)
        # It gave way, and came back.
        assert len(system.outcomes(long, "help")) == 2
        assert system.outcomes(long, "help")[0] == "ok"
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        assert_no_trace(system, artifacts=2)


def test_a_drained_helper_gives_back_what_it_is_at(tmp_path, site, env):
    slow = points(own="sleep:1", help="sleep:2")
    grace = {"SLUICE_TRANSCODE_DRAIN_GRACE": "0.2"}
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, {**env, **slow}, **grace) as helper,
    ):
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: begun(tmp_path)["help.mid_segment"] == 2, timeout=90)
        helper.terminate()
        assert helper.wait(30) == 0
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, tmp_path)
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        assert sum(begun(tmp_path).values()) <= SEGMENTS + 1
        assert system.outcomes(job, "help") == ["handed_back"]
        assert_no_trace(system, artifacts=1)


def test_a_machine_that_shares_the_stores_alone_helps(tmp_path, site, shared):
    slow = points(own="sleep:1", help="sleep:1")
    storage = open_storage(shared["SLUICE_STORAGE_URL"])
    elsewhere = tmp_path / "elsewhere"
    with (
        running(tmp_path / "data", **shared, **slow) as system,
        helping(system, {**shared, **slow}, data=elsewhere),
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=240)
        assert_as_one_run(system, ended, tmp_path)
        assert encoded(system) == dict.fromkeys(range(SEGMENTS), 1)
        assert len(encoded(system, "help")) >= 2
        until(lambda: not list(storage.keys("work/")), timeout=45)
        assert len(list(storage.keys("files/"))) == 1
        until(lambda: not list((elsewhere / "scratch").glob("*.*.*")), timeout=30)
        assert system.query("SELECT count(*) FROM segments") == [(0,)]
