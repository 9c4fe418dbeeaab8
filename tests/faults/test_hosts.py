"""What a remote host sees of the whole system: a few downloads at once, and patience when asked."""

from __future__ import annotations

import itertools

import pytest

from sluice_testing.outcome import assert_all_well
from sluice_testing.system import running
from sluice_testing.waiting import until

SIZE = 300_000


@pytest.fixture(scope="module")
def system(world, tmp_path_factory):
    allow = world.address()
    with running(
        tmp_path_factory.mktemp("hosts") / "data",
        SLUICE_EGRESS_ALLOW=allow,
        SLUICE_HOST_CONCURRENCY="2",
        SLUICE_DOWNLOAD_CONCURRENCY="6",
    ) as started:
        yield started


def bodies(world, links):
    """(start, end) of each download; the parser reads a little of each link only."""
    found = itertools.chain.from_iterable(
        world.stats(link.partition("?")[0]).exchanges for link in links
    )
    return [(e.started_at, e.ended_at) for e in found if e.bytes >= SIZE // 2 and e.ended_at]


def test_no_more_downloads_at_once_than_a_host_may_have(system, world):
    links = [f"/clips/10{n}/clip.mp4?bytes={SIZE}&throttle=200000" for n in range(6)]
    jobs = [system.submit(world.url(link), preset="original") for link in links]
    assert_all_well(system, world, jobs, links)
    # Who has all bytes may know so before the site does.
    until(lambda: len(bodies(world, links)) >= 6)
    spans = bodies(world, links)
    assert len(spans) == 6
    most = max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)
    assert most == 2
    for job in jobs:
        answer = system.http.get(f"/v1/jobs/{job['id']}/attempts").json()
        stages = [attempt["stage"] for attempt in answer["attempts"]]
        assert stages == ["parse", "download", "transcode"]  # waiting for a slot is no attempt


def test_a_host_that_asks_for_patience_gets_it_from_every_job(system, world):
    patience = 5
    limited = f"/clips/200/clip.mp4?bytes={SIZE}&fail=429&retry_after={patience}&times=1&id=first"
    first = system.submit(world.url(limited), preset="original")
    until(lambda: system.job(first["id"])["waiting_for"] == "retry")
    refused = world.stats("/clips/200/clip.mp4").exchanges[0].started_at
    links = [f"/clips/20{n}/clip.mp4?bytes={SIZE}" for n in (1, 2)]
    jobs = [system.submit(world.url(link), preset="original") for link in links]
    ended = system.wait([first["id"], *(job["id"] for job in jobs)])
    assert [job["status"] for job in ended] == ["SUCCESS"] * 3
    for link in links:
        exchanges = world.stats(link.partition("?")[0]).exchanges
        assert min(e.started_at for e in exchanges) >= refused + patience - 0.5
    assert [job["attempt"] for job in ended[1:]] == [1, 1]
