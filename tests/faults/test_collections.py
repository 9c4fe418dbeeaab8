"""Collections of 300 and of 5,000 entries: read, run, tried again, canceled, deleted."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from sluice_testing.fair import FairClock
from sluice_testing.system import running
from sluice_testing.waiting import until

ENTRIES = 300
BAD = ("7", "150", "299")
MANY = 5_000
#: Seconds for what is promised within two, on a machine that tests share.
PROMPT = 8.0
#: Seconds until hundreds of entries have come through.
LONG = 900.0
ENDED = ("SUCCESS", "PARTIAL", "FAILED", "CANCELED")


@pytest.fixture(scope="module")
def system(world, tmp_path_factory):
    allow = world.address()
    folder = tmp_path_factory.mktemp("collections") / "data"
    settings = {"SLUICE_EGRESS_ALLOW": allow, "SLUICE_HOST_CONCURRENCY": "20"}
    with running(folder, **settings) as started:
        yield started


def count(system, parent, where="1"):
    query = f"SELECT count(*) FROM jobs WHERE parent_id = :id AND {where}"  # noqa: S608  # constants of this file
    return system.query(query, id=parent["id"])[0][0]


def promptly(system, ask):
    """The answer to a request that does not wait for its children one by one."""
    clock = FairClock([psutil.Process(), *system.family()])
    answer = ask()
    took = clock.seconds
    assert answer.status_code == 202, answer.text
    assert took < PROMPT, took
    return answer.json()


@pytest.mark.timeout(2 * LONG)
def test_300_entries_of_which_three_fail_and_are_tried_again(system, site):
    for number in BAD:
        site.control(f"/clips/{number}/*", fail=404)
    link = site.url(f"/collection?n={ENTRIES}")
    parent = system.submit(link, preset="original")
    [ended] = system.wait([parent["id"]], timeout=LONG)
    assert (ended["status"], ended["error"]["code"]) == ("PARTIAL", "incomplete")
    assert ended["children"] == {
        **dict.fromkeys(("canceled", "active", "partial"), 0),
        "total": ENTRIES,
        "success": ENTRIES - len(BAD),
        "failed": len(BAD),
    }
    failed = (
        "SELECT json_extract(entry, '$.item'), error_code FROM jobs"
        " WHERE parent_id = :id AND status = 'FAILED'"
    )
    found = {(str(item), code) for item, code in system.query(failed, id=parent["id"])}
    assert found == {(number, "not_found") for number in BAD}
    assert count(system, parent, "lane <> 'bulk'") == 0
    artifacts = "SELECT count(*), count(DISTINCT sha256), count(DISTINCT job_id) FROM artifacts"
    assert system.query(artifacts) == [(ENTRIES - len(BAD),) * 3]
    runs = len(system.query("SELECT id FROM attempts"))
    site.reset()
    promptly(system, lambda: system.http.post(f"/v1/jobs/{parent['id']}/retry"))
    [ended] = system.wait([parent["id"]])
    assert (ended["status"], ended["children"]["success"]) == ("SUCCESS", ENTRIES)
    # The three, each from its download on; nothing else ran again.
    assert len(system.query("SELECT id FROM attempts")) == runs + 2 * len(BAD)
    promptly(system, lambda: system.http.delete(f"/v1/jobs/{parent['id']}"))
    assert system.http.get(f"/v1/jobs?parent={parent['id']}").json()["jobs"] == []
    until(lambda: not system.stored(), why="files of a deleted collection are left")


@pytest.mark.timeout(2 * LONG)
def test_5000_entries_canceled_while_they_are_found_and_after(system, site):
    site.control("/clips/*", latency=600)
    parent = system.submit(site.url(f"/collection?n={MANY}"), preset="original")
    # Children are there before the list was read to its end.
    until(lambda: MANY / 10 < count(system, parent) < MANY, every=0.01)
    cancel(system, parent)
    number = count(system, parent)
    promptly(system, lambda: system.http.post(f"/v1/jobs/{parent['id']}/retry"))
    until(
        lambda: (
            system.query("SELECT expansion_done FROM jobs WHERE id = :id", id=parent["id"])
            == [(1,)]
        ),
    )
    assert number < count(system, parent) == MANY
    # Each has one order, and each order one message.
    # Asked at once, since workers go on taking them.
    orders = (
        "SELECT count(*), count(DISTINCT job_id), (SELECT count(*) FROM jobs"
        " WHERE parent_id = :id AND status = 'PARSING') FROM outbox WHERE actor = 'parse'"
    )
    [(found, jobs, claimed)] = system.query(orders, id=parent["id"])
    assert (found, jobs) == (MANY - claimed,) * 2
    # Workers drop them from now on, a few before this look.
    until(lambda: queue(system)["waiting"] >= 0.9 * (MANY - claimed))
    cancel(system, parent)
    promptly(system, lambda: system.http.post(f"/v1/jobs/{parent['id']}/retry"))
    cancel(system, parent)
    promptly(system, lambda: system.http.delete(f"/v1/jobs/{parent['id']}"))
    until(lambda: count(system, parent) == 0, timeout=LONG, why="rows of a deleted collection")


def cancel(system, parent):
    clock = FairClock([psutil.Process(), *system.family()])
    promptly(system, lambda: system.http.post(f"/v1/jobs/{parent['id']}/cancel"))
    until(lambda: not media_children(system), every=0.05)
    assert clock.seconds < PROMPT
    assert count(system, parent, "status <> 'CANCELED'") == 0
    assert system.job(parent["id"])["status"] == "CANCELED"
    assert system.query("SELECT count(*) FROM attempts WHERE ended_at IS NULL") == [(0,)]


def media_children(system):
    found = []
    for server in system.part("parser").children():
        with suppress(psutil.NoSuchProcess):
            found += server.children()
    return found


def queue(system):
    queues = system.http.get("/v1/queues").json()["queues"]
    return next(q for q in queues if q["name"] == "parse.bulk")
