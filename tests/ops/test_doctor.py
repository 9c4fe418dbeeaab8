"""The doctor finds a healthy system healthy, a sick one sick, and leaves nothing behind."""

from __future__ import annotations

import pytest

from sluice_testing.waiting import until

BAD = "/mp4/small.mp4?fail=500"


def everything(system):
    """What a doctor could leave behind."""
    jobs = [j["id"] for j in system.http.get("/v1/jobs").json()["jobs"] if j["metadata"]]
    return jobs, system.http.get("/v1/dead-letters").json()["dead_letters"]


def links(world):
    return ("--good", world.url("/mp4/small.mp4"), "--bad", world.url(BAD))


def rows(system):
    """The doctor's jobs in the database, deleted ones too."""
    return system.query("SELECT id, options FROM jobs WHERE options LIKE '%doctor%'")


@pytest.fixture(autouse=True)
def _others_are_done(system):
    """Jobs that other tests have left to end or to be swept would come between its counts."""
    ended = "finished_at IS NOT NULL AND deleted_at IS NULL"
    until(lambda: system.query(f"SELECT count(*) FROM jobs WHERE NOT ({ended})") == [(0,)])  # noqa: S608  # constants of this file


def test_a_healthy_system(system, world, sluice):
    code, lines, err = sluice("doctor", *links(world))
    assert code == 0, (lines, err)
    assert [line[:2] for line in lines] == ["ok"] * 7
    said = "\n".join(lines)
    assert "sum is right" in said
    assert "server_error after 2 runs, 1 dead letter" in said
    assert "SUCCESS +2, FAILED +1, dead letters +1, messages on the way 0" in said
    assert everything(system) == ([], [])
    # Rows and files go with the next sweep.
    until(lambda: not rows(system), why="jobs of the doctor are left")


def test_a_good_link_that_is_not(system, world, sluice):
    bad = world.url("/mp4/small.mp4?fail=404")
    code, lines, _ = sluice("doctor", "--good", bad, "--bad", world.url(BAD))
    assert code == 1
    assert any(line.startswith("FAIL good job") and "not_found" in line for line in lines), lines
    assert any(line.startswith("ok   failing job") for line in lines), lines
    assert everything(system) == ([], [])


def test_a_failing_job_that_does_not_fail(system, world, sluice):
    good = world.url("/mp4/small.mp4")
    code, lines, _ = sluice("doctor", "--good", good, "--bad", good)
    assert code == 1
    assert any(line.startswith("FAIL failing job") and "should have" in line for line in lines), (
        lines
    )
    assert everything(system) == ([], [])


def test_a_storage_that_takes_no_writes(system, world, sluice):
    storage = system.data / "storage"
    aside = storage.rename(system.data / "storage-aside")
    storage.touch()
    try:
        code, lines, _ = sluice("doctor", *links(world))
    finally:
        storage.unlink()
        aside.rename(storage)
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("FAIL stores        storage: The storage folder")
    assert everything(system) == ([], [])


def test_a_stopped_scheduler(system, world, sluice):
    """Nothing that is due later runs: no retry, no delayed job."""
    scheduler = system.part("scheduler")
    scheduler.suspend()
    try:
        code, lines, _ = sluice("doctor", *links(world), "--timeout", "30")
    finally:
        scheduler.resume()
    assert code == 1
    assert any(line.startswith("ok   good job") for line in lines), lines
    assert any(line.startswith("FAIL delayed job") for line in lines), lines
    assert any(line.startswith("FAIL counts") for line in lines), lines
    assert lines[-1] == "ok   clean-up      nothing is left"
    assert everything(system) == ([], [])


def test_the_sample_site_out_of_reach(sluice):
    code, lines, err = sluice("doctor", "--site-port", "0")
    assert code == 2
    assert "SLUICE_EGRESS_ALLOW=127.0.0.1:" in err
    assert "--good LINK" in err
    assert not any(line.startswith("FAIL") for line in lines)


def test_no_sample_site_for_servers_elsewhere(sluice):
    code, _, err = sluice("doctor", "--url", "http://sluice.invalid:8080")
    assert code == 2
    assert "give --good LINK" in err


def test_nobody_there(sluice, world):
    code, _, _ = sluice("doctor", *links(world), "--url", "http://127.0.0.1:9")
    assert code == 3
