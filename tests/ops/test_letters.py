"""A job that ran out of tries, as an operator meets it on the command line."""

from __future__ import annotations

import itertools
import json

import pytest

from sluice_testing.waiting import until

#: A name that each test makes its own by a number.
LINK = "/clips/{n}/film.mp4?bytes=300000"
numbers = itertools.count(9_000)


@pytest.fixture
def failed(system, world):
    """A job that failed twice because of its site, which is well again now."""
    link = LINK.format(n=next(numbers))
    path = link.partition("?")[0]
    world.control(path, fail=503)
    job = system.submit(world.url(link), preset="original")
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "server_error")
    world.control(path)
    yield job
    system.http.delete(f"/v1/jobs/{job['id']}")


def test_listed_explained_and_requeued(system, sluice, failed):
    code, lines, _ = sluice("dead-letters", "list", "--job", failed["id"], "--json")
    assert code == 0
    letter = json.loads(lines[0])
    assert letter["reason"].startswith("server_error: ")
    assert letter["queue"] == "parse.default"

    code, lines, _ = sluice("explain", failed["id"])
    assert code == 0
    assert lines[0].startswith("The job is FAILED: failed: ")
    runs = [line for line in lines if line.startswith("Run ")]
    assert [" it ended retry after" in runs[0], " it ended failed after" in runs[1]] == [True, True]

    code, lines, _ = sluice("dead-letters", "requeue", letter["id"])
    assert (code, lines) == (0, [f"{letter['id']} requeued: job {failed['id']}"])
    [job] = system.wait([failed["id"]])
    assert job["status"] == "SUCCESS"
    assert sluice("dead-letters", "list", "--job", failed["id"], "--json")[1] == []
    code, _, err = sluice("dead-letters", "requeue", letter["id"])
    assert code == 2
    assert "no such dead letter" in err


def test_dropped(system, sluice, failed):
    code, lines, _ = sluice("dead-letters")
    assert code == 0
    [row] = [line for line in lines if failed["id"] in line]
    assert sluice("dead-letters", "drop", row.split()[0])[0] == 0
    assert failed["id"] not in "\n".join(sluice("dead-letters")[1])
    assert system.job(failed["id"])["status"] == "FAILED"


def test_explain_of_a_job_under_way(system, world, sluice):
    # It goes on until it is deleted.
    link = "/clips/77/slow.mp4?bytes=90000000&throttle=100000"
    job = system.submit(world.url(link), preset="original")
    try:
        until(lambda: (system.job(job["id"])["progress"]["bytes"] or 0) > 0)
        code, lines, _ = sluice("explain", job["id"])
        assert code == 0
        assert lines[0].startswith("The job is DOWNLOADING: downloading")
        assert "its message is in flight with" in lines[-1]
    finally:
        system.http.delete(f"/v1/jobs/{job['id']}")
    code, _, err = sluice("explain", job["id"])
    assert code == 2
    assert "no such job" in err
