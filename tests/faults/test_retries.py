"""What a failure means decides what follows; what is to be tried again waits in the database."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime

import pytest

from sluice_testing.system import running
from sluice_testing.waiting import until

MIB = 1024 * 1024
#: Seconds until a test gives up waiting for a step of a job; how soon it comes is no matter here.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def allow(world):
    return world.address()


@pytest.fixture(scope="module")
def system(allow, tmp_path_factory):
    folder = tmp_path_factory.mktemp("retries") / "data"
    with running(folder, SLUICE_EGRESS_ALLOW=allow) as started:
        yield started


def letters(system):
    return {row["job_id"] for row in system.http.get("/v1/dead-letters").json()["dead_letters"]}


def test_each_class_of_failure_gets_what_it_deserves(system, site):
    small = 2 * MIB
    permanent, manual, heals, unknown = (f"/big/{small + n}.mp4" for n in range(4))
    site.control(permanent, fail=404)
    site.control(manual, fail=401)
    site.control(heals, fail=503, times=2)
    site.control(unknown, stall=1000)
    jobs = {
        link: system.submit(site.url(link), preset="original")
        for link in (permanent, manual, heals, unknown)
    }
    for number in range(1, 4):
        crash_child(system, jobs[unknown], number)
    ended = system.wait([job["id"] for job in jobs.values()])
    found = {
        link: (job["status"], (job["error"] or {}).get("code"), (job["error"] or {}).get("class"))
        for link, job in zip(jobs, ended, strict=True)
    }
    assert found == {
        permanent: ("FAILED", "not_found", "permanent"),
        manual: ("FAILED", "login_required", "manual"),
        heals: ("SUCCESS", None, None),
        unknown: ("FAILED", "internal", "transient"),
    }
    assert system.outcomes(jobs[permanent], "parse") == ["failed"]
    assert system.outcomes(jobs[manual], "parse") == ["failed"]
    assert system.outcomes(jobs[heals], "parse") == ["retry", "retry", "ok"]
    # Fewer tries than a failure that is known to heal would get.
    assert system.outcomes(jobs[unknown], "download") == ["retry", "retry", "failed"]
    assert letters(system) == {jobs[unknown]["id"]}


def test_storage_that_is_away_costs_nobody_the_subtitles(system, site):
    # In which the storage goes: no machine is so busy that it takes longer.
    site.control("/subtitles/en.vtt", latency=10, times=1)
    page = site.url("/pages/video?subtitles=en&media=/mp4/small.mp4")
    job = system.submit(page, preset="original", subtitles=["en"])
    until(lambda: site.stats("/subtitles/en.vtt").requests, timeout=PATIENCE, every=0.02)
    storage, elsewhere = system.data / "storage", system.data / "elsewhere"
    storage.rename(elsewhere)
    until(lambda: system.outcomes(job, "download")[:1] == ["retry"], timeout=PATIENCE)
    elsewhere.rename(storage)
    [ended] = system.wait([job["id"]], timeout=PATIENCE)
    assert (ended["status"], ended["error"]) == ("SUCCESS", None)
    assert [file["kind"] for file in ended["files"]] == ["video", "subtitle"]


def crash_child(system, job, number):
    """A fault of the child's own, which nobody has a code for."""
    query = (
        "SELECT child_pid FROM attempts WHERE job_id = :id AND stage = 'download'"
        " AND number = :number AND ended_at IS NULL AND child_pid IS NOT NULL"
    )
    [(pid,)] = until(lambda: system.query(query, id=job["id"], number=number))
    os.kill(pid, signal.SIGSEGV)


def test_a_retry_waits_in_the_database_alone(tmp_path, allow, site):
    link, patience = f"/big/{2 * MIB}.mp4", 20
    site.control(link, fail=503, retry_after=patience, times=1)
    with running(tmp_path / "data", SLUICE_EGRESS_ALLOW=allow) as system:
        job = system.submit(site.url(link), preset="original")
        waits = until(lambda: waiting(system, job))
        due = datetime.fromisoformat(waits["retry_at"]).timestamp()
        assert due >= site.stats(link).exchanges[0].started_at + patience
        # Nobody holds it: no message, no claim.
        until(lambda: held_by(system) == {"waiting": 0, "in_flight": 0, "delayed": 1})
        system.kill_all()
        system.start()
        started = time.time()
        again = system.job(job["id"])
        told = (again["waiting_for"], again["retry_at"]) == ("retry", waits["retry_at"])
        # It may have taken longer to start than the job has to wait.
        assert told or time.time() >= due
        [ended] = system.wait([job["id"]])
        assert ended["status"] == "SUCCESS"
        query = "SELECT claimed_at FROM attempts WHERE job_id = :id AND stage = 'parse'"
        first, second = sorted(at for (at,) in system.query(query, id=job["id"]))
        assert first < due <= second
        assert second - max(due, started) < 60, datetime.fromtimestamp(second, UTC)


def held_by(system):
    """Messages of all queues, by where they are."""
    queues = system.http.get("/v1/queues").json()["queues"]
    return {where: sum(q[where] for q in queues) for where in ("waiting", "in_flight", "delayed")}


def waiting(system, job):
    found = system.job(job["id"])
    return found if found["waiting_for"] == "retry" else None
