"""Media children that somebody else kills cost a healthy job nothing; one that always dies ends."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest

from sluice_testing.encodes import LONG, write_presets
from sluice_testing.process import is_alive
from sluice_testing.system import running
from sluice_testing.waiting import until

MIB = 1024 * 1024
#: Counted losses after which a job runs alone, and the one there that ends it.
LOSSES = 3
#: Processor seconds after which an encoder is well beyond its start.
OPENED = 0.3
#: Seconds for what takes a few, on a machine that tests share.
PATIENCE = 300.0


@pytest.fixture(scope="module")
def system(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("children")
    with running(
        folder / "data",
        SLUICE_EGRESS_ALLOW=world.address(),
        SLUICE_PRESETS_FILE=str(write_presets(folder)),
    ) as started:
        yield started


def assert_whole(system, site, jobs, links):
    """All ended in SUCCESS with the site's own bytes, first tries, and no folder is left."""
    ended = system.wait([job["id"] for job in jobs], timeout=PATIENCE)
    for job, link in zip(ended, links, strict=True):
        assert (job["status"], job["error"]) == ("SUCCESS", None)
        assert [file["sha256"] for file in job["files"]] == [site.sha256(link)]
        found = system.query("SELECT losses, tries FROM jobs WHERE id = :id", id=job["id"])
        assert found == [(0, 1)]
        left = (system.data / "scratch").glob(f"{job['id']}.*")
        until(lambda left=left: not list(left))


def child_of(system, job, *, progressed=False):
    """Process id of the job's downloading child that lives now; None when there is none."""
    query = (
        "SELECT child_pid FROM attempts WHERE job_id = :id AND ended_at IS NULL"
        " AND stage = 'download' AND child_pid IS NOT NULL AND progressed >= :progressed"
    )
    for (pid,) in system.query(query, id=job["id"], progressed=progressed):
        if is_alive(pid):
            return pid
    return None


def kill_child(system, job, *, progressed=False, how=signal.SIGKILL):
    pid = until(lambda: child_of(system, job, progressed=progressed), timeout=PATIENCE)
    os.kill(pid, how)
    until(lambda: child_of(system, job) != pid, timeout=PATIENCE)


def test_kills_with_progress_between_cost_nothing(system, site):
    link = f"/big/{24 * MIB}.mp4"
    # Far slower than five children need to be found and killed.
    site.control(link, throttle=MIB)
    job = system.submit(site.url(link), preset="original")
    *first, last = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
    for how in first:
        kill_child(system, job, progressed=True, how=how)
    # The last one is held back; who comes after it is not.
    until(lambda: child_of(system, job, progressed=True), timeout=PATIENCE)
    site.control(link)
    kill_child(system, job, progressed=True, how=last)
    assert_whole(system, site, [job], [link])
    assert system.outcomes(job, "download") == ["child_lost"] * 5 + ["ok"]
    assert site.stats(link).bytes < 24 * MIB + 5 * 2 * MIB


def test_a_job_whose_child_always_dies_is_put_aside_and_its_neighbour_is_not(system, site):
    bad, good = f"/big/{9 * MIB}.mp4", f"/big/{8 * MIB}.mp4"
    site.control(bad, stall=1000)
    site.control(good, throttle=MIB)
    neighbour = system.submit(site.url(good), preset="original")
    job = system.submit(site.url(bad), preset="original")
    for _ in range(LOSSES):
        kill_child(system, job)
    [ended] = system.wait([job["id"]], timeout=PATIENCE)
    assert (ended["status"], ended["error"]["code"]) == ("FAILED", "worker_lost")
    assert system.outcomes(job, "download") == ["child_lost"] * LOSSES
    workers = system.query("SELECT DISTINCT worker FROM attempts WHERE job_id = :id", id=job["id"])
    # The parser, the downloader, and the process of its own.
    assert len(workers) == 3
    letters = system.http.get("/v1/dead-letters").json()["dead_letters"]
    assert [letter["job_id"] for letter in letters] == [job["id"]]
    site.control(good)
    assert_whole(system, site, [neighbour], [good])
    assert system.outcomes(neighbour, "download") == ["ok"]


def test_a_killed_fork_server_takes_its_children_along_and_no_tries(system, site):
    links = [f"/big/{n * MIB}.mp4" for n in (10, 11)]
    for link in links:
        site.control(link, throttle=MIB / 2)
    jobs = [system.submit(site.url(link), preset="original") for link in links]
    for throttled in (True, False):
        children = [
            psutil.Process(
                until(lambda j=job: child_of(system, j, progressed=True), timeout=PATIENCE)
            )
            for job in jobs
        ]
        [server] = {child.ppid() for child in children}
        for link in links if not throttled else ():
            # For the children that come after these.
            site.control(link)
        os.kill(server, signal.SIGKILL)
        until(lambda children=children: not any(map(is_alive, children)))
    assert_whole(system, site, jobs, links)
    assert [system.outcomes(job, "download") for job in jobs] == [
        ["child_lost", "child_lost", "ok"]
    ] * 2


def test_a_killed_encode_begins_anew_and_uses_up_no_try(system, site):
    worker = system.part("transcoder")
    job = system.submit(site.url(LONG), preset="medium")
    for how in (signal.SIGTERM, signal.SIGKILL):
        encoder = until(lambda: encoder_of(worker), timeout=PATIENCE, every=0.001)
        # While it opens its input, it takes a SIGTERM for an end of that, and calls it invalid.
        until(lambda e=encoder: e.cpu_times().user > OPENED, timeout=PATIENCE, every=0.01)
        encoder.send_signal(how)
        until(lambda e=encoder: not is_alive(e))
    [ended] = system.wait([job["id"]], timeout=PATIENCE)
    assert (ended["status"], ended["error"]) == ("SUCCESS", None)
    assert system.outcomes(job, "transcode") == ["child_lost", "child_lost", "ok"]
    assert system.query("SELECT tries FROM jobs WHERE id = :id", id=job["id"]) == [(1,)]


def encoder_of(worker):
    """The worker's ffmpeg, if one runs now."""
    with suppress(psutil.Error):
        for process in worker.children(recursive=True):
            if "-progress" in process.cmdline():
                return process
    return None
