"""Server-sent events of the whole system: nothing is missed, whatever is killed meanwhile."""

from __future__ import annotations

import itertools
import json
import time
from threading import Thread

import httpx
import pytest

from sluice_testing.waiting import PATIENCE, until

numbers = itertools.count(1)
TERMINAL = {"SUCCESS", "PARTIAL", "FAILED", "CANCELED"}
ORDER = ["PENDING", "PARSING", "DOWNLOADING", "MERGING", "SUCCESS"]


def slow(world, seconds):
    """A download that takes so long."""
    number = next(numbers) + 30_000
    return world.url(f"/clips/{number}/c.mp4?bytes={seconds * 300_000}&throttle=300000")


def blocks(answer):
    """Whole blocks of a stream, until it ends or breaks."""
    text = ""
    for chunk in answer.iter_text():
        text += chunk
        *whole, text = text.split("\n\n")
        yield from whole


def fields(block):
    return dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))


class Reader:
    """Comes back with `Last-Event-ID` for ever, as browsers do; never stays for long."""

    def __init__(self, system, path, *, stay):
        self._system, self._path, self._stay = system, path, stay
        self.last = None
        self.events = []
        self.connections = 0
        self._stopping = False
        self._thread = Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping = True
        self._thread.join(PATIENCE)

    def _run(self):
        with httpx.Client(base_url=self._system.url, timeout=5) as http:
            while not self._stopping:
                try:
                    self._once(http)
                except httpx.HTTPError:
                    time.sleep(0.1)

    def _once(self, http):
        headers = {"Last-Event-ID": self.last} if self.last else {}
        until_then = time.monotonic() + self._stay
        with http.stream("GET", self._path, headers=headers) as answer:
            answer.raise_for_status()
            self.connections += 1
            for block in blocks(answer):
                found = fields(block)
                if "id" in found:
                    self.last = found["id"]
                    self.events.append((found["event"], json.loads(found["data"])))
                if time.monotonic() > until_then or self._stopping:
                    return


def states(reader, job_id):
    """Each state in which a job was told, in order, repetitions left out."""
    told = [data["status"] for kind, data in reader.events if data.get("id") == job_id]
    return [status for status, _ in itertools.groupby(told)]


@pytest.mark.parametrize("stay", [0.4, 60.0], ids=["comes and goes", "stays"])
def test_no_end_is_missed_over_an_emptied_redis_and_a_killed_api(system, world, stay):
    with Reader(system, "/v1/events", stay=stay) as reader:
        jobs = [system.submit(slow(world, seconds), preset="original") for seconds in (1, 2, 4, 6)]
        until(lambda: reader.events)
        with system.redis() as client:
            client.flushall()
        time.sleep(1.0)  # jobs of several ages meet the kill
        system.kill("api")
        ended = system.wait([job["id"] for job in jobs])
        assert {job["status"] for job in ended} == {"SUCCESS"}
        until(
            lambda: all(states(reader, job["id"])[-1:] == ["SUCCESS"] for job in jobs),
            why=lambda: f"told were {[states(reader, job['id']) for job in jobs]}",
        )
    assert reader.connections >= 2
    for job in jobs:
        told = states(reader, job["id"])
        assert told == sorted(told, key=ORDER.index)
    # A known id needs no snapshot: only the first connection is given one.
    assert [kind for kind, _ in reader.events].count("snapshot") == 1


def test_the_stream_of_a_job_tells_all_and_ends(system, world):
    job = system.submit(slow(world, 2), preset="original")
    with (
        httpx.Client(base_url=system.url, timeout=PATIENCE) as http,
        http.stream("GET", job["links"]["events"]) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        assert "no-transform" in answer.headers["cache-control"]
        first, *rest = blocks(answer)
    assert first == "retry: 3000"
    told = [fields(block) for block in rest if not block.startswith((":", "retry"))]
    assert all(one["id"] for one in told)
    assert len({one["id"] for one in told}) == len(told)
    assert {one["event"] for one in told} >= {"job", "progress"}
    last = json.loads(told[-1]["data"])
    assert last["status"] == "SUCCESS"
    assert last["files"]
    nothing_more = system.http.get(
        job["links"]["events"], headers={"Last-Event-ID": told[-1]["id"]}
    )
    # One that stays open says after 15 s that it lives.
    assert ":" not in [block[:1] for block in nothing_more.text.split("\n\n")]


def test_a_silent_stream_says_every_15_s_that_it_lives(system, world):
    job = system.submit(world.url("/mp4/plain.mp4?later"), not_before="2099-01-01T00:00:00Z")
    begun = time.monotonic()
    with (
        httpx.Client(base_url=system.url, timeout=PATIENCE) as http,
        http.stream("GET", job["links"]["events"]) as answer,
    ):
        comment = next(block for block in blocks(answer) if block.startswith(":"))
    assert comment
    # Twice as long would be too long for many proxies.
    assert 14 < time.monotonic() - begun < 28
