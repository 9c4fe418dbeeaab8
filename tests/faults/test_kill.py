"""Killing parts and emptying Redis delays jobs and loses none."""

from __future__ import annotations

import itertools
import time

import pytest

from sluice_testing.outcome import assert_all_well
from sluice_testing.parts import SETS, parts_of
from sluice_testing.system import running
from sluice_testing.waiting import until

#: A clip is 400 kB at 200 kB/s: every job is under way for seconds.
CLIP = "/clips/{n}/clip-{n}.mp4?bytes=400000&throttle=200000"
JOBS = 10
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=SETS)
def system(world, tmp_path_factory, request):
    """One for all tests: whatever is killed comes back by itself."""
    folder, parts = tmp_path_factory.mktemp("kill"), parts_of(request.param, request)
    with running(folder / "data", SLUICE_EGRESS_ALLOW=world.address(), **parts) as started:
        yield started


@pytest.fixture
def busy(system, world):
    """Downloads at work; returns what makes sure that each comes to its end."""
    before = len(system.stored())
    links = [CLIP.format(n=next(numbers)) for _ in range(JOBS)]
    jobs = [system.submit(world.url(link), preset="original") for link in links]
    until(
        lambda: any(system.job(job["id"])["status"] == "DOWNLOADING" for job in jobs),
        why="nothing got under way",
    )
    return lambda: assert_all_well(system, world, jobs, links, before=before)


@pytest.mark.parametrize("part", ["parser", "downloader", "transcoder", "scheduler", "api"])
def test_kill_of_a_part(system, busy, part):
    system.kill(part)
    busy()


def test_kill_of_every_worker_in_turn(system, busy):
    for part in ("parser", "downloader", "transcoder", "scheduler", "api"):
        system.kill(part)
        time.sleep(0.5)  # the next one is to die in another moment of the same jobs
    busy()


def test_emptied_redis(system, busy):
    with system.redis() as client:
        client.flushall()
    busy()


def test_killed_redis(system, busy):
    system.kill("redis")
    busy()
