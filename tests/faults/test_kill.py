"""Killing parts and emptying Redis delays jobs and loses none."""

from __future__ import annotations

import time

import pytest

from sluice_testing.outcome import assert_all_well
from sluice_testing.system import running
from sluice_testing.waiting import until

#: A clip is 400 kB at 200 kB/s: every job is under way for seconds.
CLIP = "/clips/{n}/clip-{n}.mp4?bytes=400000&throttle=200000"
JOBS = 10


@pytest.fixture
def system(world, tmp_path, parts):
    allow = world.address()
    with running(tmp_path / "data", SLUICE_EGRESS_ALLOW=allow, **parts) as started:
        yield started


def submit_all(system, world):
    links = [CLIP.format(n=n) for n in range(JOBS)]
    jobs = [system.submit(world.url(link), preset="original") for link in links]
    until(
        lambda: any(system.job(job["id"])["status"] == "DOWNLOADING" for job in jobs),
        timeout=30,
        why="nothing got under way",
    )
    return jobs, links


@pytest.mark.parametrize("part", ["parser", "downloader", "transcoder", "scheduler", "api"])
def test_kill_of_a_part(system, world, part):
    jobs, links = submit_all(system, world)
    system.kill(part)
    assert_all_well(system, world, jobs, links)


def test_kill_of_every_worker_in_turn(system, world):
    jobs, links = submit_all(system, world)
    for part in ("parser", "downloader", "transcoder", "scheduler", "api"):
        system.kill(part)
        time.sleep(0.5)  # the next one is to die in another moment of the same jobs
    assert_all_well(system, world, jobs, links)


def test_emptied_redis(system, world):
    jobs, links = submit_all(system, world)
    with system.redis() as client:
        client.flushall()
    assert_all_well(system, world, jobs, links)


def test_killed_redis(system, world):
    jobs, links = submit_all(system, world)
    system.kill("redis")
    assert_all_well(system, world, jobs, links)
