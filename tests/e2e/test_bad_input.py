"""Wrong links and bodies, against the running system: a sentence each, and nothing stored."""

from __future__ import annotations

import itertools

import psutil
import pytest

from sluice_testing.fair import FairClock

numbers = itertools.count(1)

LINKS = [
    "",
    "   ",
    "not a link",
    "http://",
    "http://127.0.0.1/a",
    "http://2130706433/a",
    "http://0x7f.1/a",
    "http://[::1]/a",
    "http://[::ffff:10.0.0.1]/a",
    "http://10.0.0.1/a",
    "http://169.254.169.254/latest/meta-data",
    "http://localhost/a",
    "file:///etc/passwd",
    "ftp://example.com/a",
    "javascript:alert(1)",
    "-rf",
    "--exec=id",
    "http://example.com/" + "a" * 10_240,
    "http://ex\u200bample.com\uff0f@127.0.0.1/",
]
BODIES = [
    {},
    [],
    "text",
    {"url": 1},
    {"url": ["http://example.com/"]},
    {"url": "http://example.com/a", "preset": "nonsense"},
    {"url": "http://example.com/a", "colour": "red"},
    {"url": "http://example.com/a", "priority": "urgent"},
    {"url": "http://example.com/a", "force": "maybe"},
]


#: What submitting writes, each row by what tells it from others.
ROWS = (
    "select id from jobs",
    "select key from idempotency_keys",
    # A known job's orders come and go while it is worked on or swept.
    "select job_id from outbox",
)


def rows(system):
    return [set(system.query(query)) for query in ROWS]


def refused(answer):
    problem = answer.json()
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["code"]
    assert problem["detail"].endswith((".", "!"))


@pytest.fixture
def nothing_stored(system):
    before = rows(system)
    yield
    # Others' rows may have gone meanwhile.
    jobs, keys, orders = (now - then for now, then in zip(rows(system), before, strict=True))
    assert (jobs, keys, orders - before[0]) == (set(), set(), set())


@pytest.mark.usefixtures("nothing_stored")
def test_bad_links_and_bodies(system):
    for link in LINKS:
        refused(system.http.post("/v1/jobs", json={"url": link}))
    for body in BODIES:
        refused(system.http.post("/v1/jobs", json=body))
    json_type = {"Content-Type": "application/json"}
    refused(system.http.post("/v1/jobs", content=b'{"url": "http://exa', headers=json_type))
    refused(system.http.post("/v1/jobs", content=b" " * 11_000_000, headers=json_type))


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("/mp4/plain.mp4?fail=404", {"not_found"}),
        ("/pages/text?a", {"no_media"}),
        ("/broken/html.mp4?a", {"bad_media"}),
        ("/broken/empty.mp4?a", {"bad_media"}),
        ("/mp4/plain.mp4?fail=410", {"gone"}),
        ("/redirect/loop?a", {"network", "not_found", "unsupported_url", "server_error"}),
    ],
)
def test_links_without_media_fail_within_seconds(system, world, path, codes):
    clock = FairClock([psutil.Process(), *system.family()])
    job = system.submit(world.url(f"{path}&n={next(numbers)}"), force=True)
    [ended] = system.wait([job["id"]])
    assert clock.seconds < 15
    assert ended["status"] == "FAILED"
    assert ended["error"]["code"] in codes
    assert ended["error"]["message"]
    assert ended["error"]["help"]
    assert ended["files"] == []


def test_a_dead_host_fails(system):
    job = system.submit("http://nobody-lives-here.invalid/a.mp4", force=True)
    [ended] = system.wait([job["id"]])
    assert (ended["status"], ended["error"]["code"]) == ("FAILED", "network")
