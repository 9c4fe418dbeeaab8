"""A retry by hand goes on from the stage that failed: the site's own byte counter is the judge."""

from __future__ import annotations

import pytest

from sluice_testing.waiting import until

SIZE = 2_000_000
#: What a link costs to look at before it is fetched, and a read-ahead on both ends of a cut.
SMALL = 300_000


def link_of(number):
    return f"/clips/{number}/film.mp4?bytes={SIZE}"


def path_of(number):
    return f"/clips/{number}/film.mp4"


def runs_of(system, job):
    attempts = system.http.get(f"/v1/jobs/{job['id']}/attempts").json()["attempts"]
    return [(a["stage"], a["outcome"]) for a in attempts]


def retry(system, job):
    answer = system.http.post(f"/v1/jobs/{job['id']}/retry")
    answer.raise_for_status()
    [ended] = system.wait([job["id"]])
    return answer.json()["status"], ended


@pytest.fixture
def submitted(system):
    jobs = []

    def submit(url, **fields):
        jobs.append(system.submit(url, force=True, **fields))
        return jobs[-1]

    yield submit
    for job in jobs:
        system.http.delete(f"/v1/jobs/{job['id']}")


def test_from_parse(system, world, submitted):
    world.control(path_of(501), fail=500)
    job = submitted(world.url(link_of(501)), preset="original")
    [job] = system.wait([job["id"]])
    assert job["status"] == "FAILED"
    assert world.stats(path_of(501)).bytes < SMALL
    # Throttled, the counter runs no further ahead of the client than a small buffer.
    world.control(path_of(501), throttle=4_000_000)
    began, job = retry(system, job)
    assert (began, job["status"]) == ("PENDING", "SUCCESS")
    assert SIZE <= world.stats(path_of(501)).bytes <= SIZE + SMALL


def test_from_download(system, world, submitted):
    """The site breaks down at 60 %; what came until then is not asked for again."""
    path = path_of(502)
    world.control(path, throttle=500_000, stall=int(0.6 * SIZE))
    job = submitted(world.url(link_of(502)), preset="original")
    until(lambda: world.stats(path).bytes >= 0.6 * SIZE)
    world.control(path, fail=500)
    world.cut(path)
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "server_error")
    assert runs_of(system, job)[0] == ("parse", "ok")
    before = world.stats(path).bytes
    assert before >= 0.6 * SIZE
    world.control(path, throttle=4_000_000)
    began, job = retry(system, job)
    assert (began, job["status"]) == ("DOWNLOADING", "SUCCESS"), job["error"]
    assert job["files"][0]["sha256"] == world.sha256(link_of(502))
    assert world.stats(path).bytes <= SIZE + SMALL
    assert [stage for stage, _ in runs_of(system, job)].count("parse") == 1


def test_from_transcode(system, world, submitted):
    """There is no audio to convert: the fetched file is kept, and nothing is asked of the site."""
    path = "/mp4/silent.mp4"
    job = submitted(world.url(path), preset="audio-mp3")
    [job] = system.wait([job["id"]])
    assert job["status"] == "FAILED", job
    assert runs_of(system, job)[-1] == ("transcode", "failed")
    requests, served = len(world.stats(path).exchanges), world.stats(path).bytes
    assert served >= world.size(path)
    began, job = retry(system, job)
    assert (began, job["status"]) == ("MERGING", "FAILED")
    assert [stage for stage, _ in runs_of(system, job)].count("download") == 1
    assert (len(world.stats(path).exchanges), world.stats(path).bytes) == (requests, served)
