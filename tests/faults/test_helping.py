"""Slots with nothing else to do encode segments of a long encode; whatever becomes of them."""

from __future__ import annotations

import re
import signal
import time
from contextlib import contextmanager, nullcontext, suppress

import psutil
import pytest

from sluice_core.adapters.storage import open_storage
from sluice_testing.encodes import FRAMES, LENGTH, LONG, streams
from sluice_testing.fair import FairClock
from sluice_testing.gate import Gate
from sluice_testing.outcome import assert_nothing_left
from sluice_testing.postgres import PostgresServer
from sluice_testing.system import running, until

#: A minute of media becomes ten of these.
SECONDS = 6
SEGMENTS = 10
#: Seconds of an outage.
AWAY = 10.0


@pytest.fixture
def env(encodes):
    return {
        **encodes,
        "SLUICE_SEGMENT_SECONDS": str(SECONDS),
        # The run itself takes the only slot of its process.
        "SLUICE_TRANSCODE_CONCURRENCY": "1",
    }


def points(**actions):
    """Faults or delays while a segment is encoded: by the run itself, or by who helps."""
    names = {"own": "transcode.mid_segment", "help": "help.mid_segment"}
    rules = [f"{names[who]}={action}" for who, action in actions.items()]
    return {"SLUICE_FAILPOINTS": ",".join(rules)}


@contextmanager
def helping(system, **env):
    """A second transcoder; it takes no job of its own unless its lanes say so."""
    log = system.data.parent / "helper.log"
    before = log.read_text().count("worker_ready") if log.exists() else 0
    process = system.another("transcoder", log=log, **{"SLUICE_TRANSCODE_LANES": "bulk"} | env)
    try:
        until(lambda: log.read_text().count("worker_ready") > before, why=str(log))
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(120)


def assert_as_one_run(system, job, said, *, tries=1):
    assert (job["status"], job["error"], job["attempt"]) == ("SUCCESS", None, tries)
    made = system.data.parent / "made.mp4"
    made.write_bytes(system.download(job))
    found = streams(made)
    assert int(found["video"]["nb_read_packets"]) == FRAMES
    assert float(found["video"]["duration"]) == pytest.approx(LENGTH, abs=0.04)
    assert float(found["audio"]["duration"]) == pytest.approx(LENGTH, abs=0.05)
    starts = [float(stream["start_time"]) for stream in found.values()]
    assert starts == pytest.approx([0, 0], abs=0.03)
    assert not said.lines("encoded_in_one_run")


def assert_no_trace(system, *, artifacts):
    """Nothing of those who helped: no row that waits, no claim, no file, no dead letter."""
    assert system.query("SELECT count(*) FROM segments") == [(0,)]
    assert system.query("SELECT count(*) FROM outbox") == [(0,)]
    assert system.query("SELECT count(*) FROM dead_letters") == [(0,)]
    until(
        lambda: system.query("SELECT count(*) FROM attempts WHERE ended_at IS NULL") == [(0,)],
    )
    assert_nothing_left(system, artifacts=artifacts)


def helpers_ended(system, job):
    """How each that helped ended; the job may end before."""
    return until(
        lambda: None not in (found := system.outcomes(job, "help")) and found,
        why="a helper has not ended",
    )


def test_two_processes_share_an_encode(tmp_path, site, env, said):
    slow = points(own="sleep:1", help="sleep:1")
    with running(tmp_path / "data", **env, **slow) as system, helping(system):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        assert len(said.encoded("help")) >= 3
        assert len(said.encoded("transcode")) >= 3
        assert system.outcomes(job, "transcode") == ["ok"]
        assert set(helpers_ended(system, job)) <= {"ok", "canceled"}
        assert_no_trace(system, artifacts=1)


def own(system):
    """Processes below a worker that encode."""
    found = []
    for process in psutil.Process(system).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [process] if "ffmpeg" in process.name() else []
    return found


def test_a_killed_helper_costs_its_segment_and_no_try_and_is_replaced(tmp_path, site, env, said):
    # Longer in all than it takes to miss one that is lost.
    faults = points(own="sleep:3.5", help="kill*1/2")
    with (
        running(tmp_path / "data", **env, **faults, SLUICE_SEGMENT_HELPERS="1") as system,
        helping(system) as one,
        helping(system) as other,
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert {one.poll(), other.poll()} == {-signal.SIGKILL, None}
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        assert len(said.encoded("help")) >= 2
        # One was begun twice: that of the helper that was lost.
        assert sum(said.begun().values()) == SEGMENTS + 1
        assert system.outcomes(job, "transcode") == ["ok"]
        first, second = helpers_ended(system, job)
        assert (first, second in {"ok", "canceled"}) == ("lost", True)
        assert system.query("SELECT losses, tries FROM jobs") == [(0, 1)]
        assert_no_trace(system, artifacts=1)


def test_a_killed_run_costs_one_segment_and_its_helper_goes_on(tmp_path, site, env, said):
    faults = points(own="kill*1/2", help="sleep:1.5")
    with running(tmp_path / "data", **env, **faults) as system, helping(system):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        # One was begun twice: that of the run that was lost.
        assert sum(said.begun().values()) == SEGMENTS + 1
        assert system.outcomes(job, "transcode") == ["lost", "ok"]
        assert set(helpers_ended(system, job)) <= {"ok", "canceled"}
        # The helper was at it all the time that nobody else was.
        assert len(said.encoded("help")) >= 5
        assert_no_trace(system, artifacts=1)


def test_a_paused_helper_that_wakes_late_changes_nothing(tmp_path, site, env, said, postgres_url):
    # SQLite has one lock for all writers: one that is paused while it has it pauses them all.
    env["SLUICE_DATABASE_URL"] = postgres_url
    slow = points(own="sleep:1")
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, **points(help="stop*1/2")) as helper,
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=180)
        assert psutil.Process(helper.pid).status() == psutil.STATUS_STOPPED
        assert_as_one_run(system, ended, said)
        taken_back = said.lines("segment_taken_back")
        assert system.outcomes(job, "help") == ["lost"] or taken_back
        [file] = ended["files"]
        rows = system.query("SELECT id, epoch, tries, status FROM jobs")
        helper.send_signal(signal.SIGCONT)
        until(lambda: said.lines("help_ended"))
        assert system.query("SELECT id, epoch, tries, status FROM jobs") == rows
        assert system.job(job["id"])["files"] == [file]
        assert set(helpers_ended(system, job)) <= {"lost", "canceled"}
        assert_no_trace(system, artifacts=1)


@contextmanager
def hung(process):
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.parametrize("redis", ["there", "away"])
def test_a_cancel_stops_all_who_encode(tmp_path, site, env, said, redis):
    with running(tmp_path / "data", **env) as system, helping(system) as helper:
        workers = (system.part("transcoder").pid, helper.pid)
        job = system.submit(site.url(LONG), preset="slow")
        until(lambda: all(own(pid) for pid in workers))
        with hung(system.part("redis")) if redis == "away" else nullcontext():
            family = [p for p in system.family() if "ffmpeg" not in p.name()]
            clock = FairClock([psutil.Process(), psutil.Process(helper.pid), *family])
            system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
            until(lambda: not any(own(pid) for pid in workers), every=0.02)
            assert clock.seconds < 2.0
            assert system.job(job["id"])["status"] == "CANCELED"
        until(lambda: said.lines("help_ended"))
        until(lambda: system.outcomes(job, "help") == ["canceled"])
        assert_no_trace(system, artifacts=0)


def test_a_job_that_comes_while_all_slots_help_waits_for_one_segment(tmp_path, site, env, said):
    slow = points(own="sleep:1.5", help="sleep:1.5")
    with (
        running(tmp_path / "data", **env, **slow) as system,
        helping(system, SLUICE_TRANSCODE_LANES="high,bulk"),
    ):
        long = system.submit(site.url(LONG), preset="small")
        until(lambda: said.begun()["help.mid_segment"])
        urgent = system.submit(site.url("/mp4/small.mp4"), preset="original", priority="high")
        query = "SELECT waiting_for FROM jobs WHERE id = :id AND stage = 'transcode'"
        until(lambda: system.query(query, id=urgent["id"]), every=0.02)
        before = len(said.encoded("help"))
        [ended] = system.wait([urgent["id"]])
        assert ended["status"] == "SUCCESS"
        assert len(said.encoded("help")) - before <= 1
        assert system.job(long["id"])["status"] == "MERGING"
        [ended] = system.wait([long["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        # It gave way, and came back.
        assert len(system.outcomes(long, "help")) == 2
        assert system.outcomes(long, "help")[0] == "ok"
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        assert_no_trace(system, artifacts=2)


@pytest.mark.parametrize(("grace", "outcome"), [("0.2", "handed_back"), ("20", "ok")])
def test_a_drained_helper_gives_back_what_it_is_at_or_ends_it(site, env, said, grace, outcome):
    slow = points(own="sleep:1", help="sleep:2")
    with (
        running(said.folder / "data", **env, **slow) as system,
        helping(system, SLUICE_TRANSCODE_DRAIN_GRACE=grace) as helper,
    ):
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: said.begun()["help.mid_segment"] >= 2)
        helper.terminate()
        assert helper.wait(120) == 0
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        repeated = outcome == "handed_back"
        assert len(said.encoded("help")) >= said.begun()["help.mid_segment"] - repeated
        assert sum(said.begun().values()) <= SEGMENTS + repeated
        assert system.outcomes(job, "help") == [outcome]
        assert_no_trace(system, artifacts=1)


def test_a_machine_that_shares_the_stores_alone_helps(tmp_path, site, shared, said):
    slow = points(own="sleep:1", help="sleep:1")
    storage = open_storage(shared["SLUICE_STORAGE_URL"])
    elsewhere = tmp_path / "elsewhere"
    with (
        running(tmp_path / "data", **shared, **slow) as system,
        helping(system, SLUICE_DATA_DIR=str(elsewhere)),
    ):
        job = system.submit(site.url(LONG), preset="small")
        [ended] = system.wait([job["id"]], timeout=240)
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        assert len(said.encoded("help")) >= 2
        until(lambda: not list(storage.keys("work/")))
        assert len(list(storage.keys("files/"))) == 1
        until(lambda: not list((elsewhere / "scratch").glob("*.*.*")))
        assert system.query("SELECT count(*) FROM segments") == [(0,)]


@pytest.fixture
def stores(own_postgres, weed_server):
    """A database and a storage of a test's own: settings, and how each goes away and comes back."""
    gate = Gate(weed_server.port)
    gate.open()
    behind = re.compile(rf"(?<=127\.0\.0\.1%3A){weed_server.port}\b")
    settings = {
        "SLUICE_DATABASE_URL": own_postgres.url(own_postgres.new_database()),
        "SLUICE_STORAGE_URL": behind.sub(str(gate.port), weed_server.new_bucket()),
    }
    yield settings, {"database": own_postgres, "storage": gate}
    gate.shut()


@pytest.mark.parametrize(
    ("what", "stop", "start", "twice"),
    [
        # The run goes on without it; a helper may begin one of those before it is told.
        ("database", PostgresServer.stop, PostgresServer.start, 1),
        ("storage", Gate.shut, Gate.open, 0),
    ],
)
def test_a_store_that_is_away_for_ten_seconds_costs_no_segment(
    site, env, said, stores, *, what, stop, start, twice
):
    settings, stored = stores
    slow = points(own="sleep:1", help="sleep:1")
    with running(said.folder / "data", **env, **settings, **slow) as system, helping(system):
        job = system.submit(site.url(LONG), preset="small")
        until(lambda: said.encoded("help") and said.encoded("transcode"), timeout=120, every=0.05)
        begun = said.begun()
        stop(stored[what])
        try:
            time.sleep(AWAY)
        finally:
            start(stored[what])
        # Somebody was at one meanwhile.
        assert said.begun() != begun
        [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        assert said.encoded().keys() == set(range(SEGMENTS))
        assert sum(said.encoded().values()) <= SEGMENTS + twice
        assert system.outcomes(job, "transcode") == ["ok"]
        assert set(helpers_ended(system, job)) <= {"ok", "canceled"}
        until(lambda: len(system.stored()) == 1)
        assert system.query("SELECT count(*) FROM segments") == [(0,)]


def test_a_redis_that_comes_back_empty_has_the_orders_again(tmp_path, site, env, said):
    slow = points(own="sleep:3.5", help="sleep:0.5")
    with running(tmp_path / "data", **env, **slow) as system:
        job = system.submit(site.url(LONG), preset="small")
        # Once it is marked the relay publishes it no more: only who looks for lost ones does.
        marked = "SELECT 1 FROM outbox WHERE actor = 'help' AND published_at IS NOT NULL"
        until(lambda: system.query(marked))
        until(lambda: said.begun()["transcode.mid_segment"])
        with system.redis() as client:
            client.flushall()
        system.kill("redis")
        with helping(system):
            [ended] = system.wait([job["id"]], timeout=180)
        assert_as_one_run(system, ended, said)
        assert said.encoded() == dict.fromkeys(range(SEGMENTS), 1)
        assert len(said.encoded("help")) >= 2
        assert_no_trace(system, artifacts=1)
