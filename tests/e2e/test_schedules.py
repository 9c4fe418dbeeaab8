"""Schedules, subscriptions and later starts through the whole system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from sluice_testing.waiting import until

FEED = "/feed"


@pytest.fixture
def grow(world):
    """Lets the feed have so many entries from now on."""

    def to(count):
        world.control(FEED, n=count, bytes=300_000)

    yield to
    world.control(FEED)


@pytest.fixture
def subscribe(system):
    made = []

    def add(url, **fields):
        body = {"url": url, "preset": "original", "name": f"feed {time.time_ns()}", **fields}
        answer = system.http.post("/v1/subscriptions", json=body)
        answer.raise_for_status()
        made.append(answer.json()["id"])
        return Subscription(system, made[-1])

    yield add
    for subscription_id in made:
        system.http.delete(f"/v1/subscriptions/{subscription_id}")


class Subscription:
    def __init__(self, system, subscription_id):
        self.system = system
        self.id = subscription_id

    def seen(self):
        return self.system.http.get(f"/v1/subscriptions/{self.id}").json()["entries_seen"]

    def firings(self):
        return self.system.http.get(f"/v1/schedules/{self.id}/firings").json()["firings"]

    def check(self):
        self.system.http.post(f"/v1/schedules/{self.id}/run").raise_for_status()

    def wait(self, number):
        """Until so many checks have ended; returns the last one's job, None when it is gone."""

        def done():
            fired = [f for f in self.firings() if f["outcome"] == "ok"]
            if len(fired) < number:
                return None
            answer = self.system.http.get(f"/v1/jobs/{fired[0]['job_id']}")
            if answer.status_code == 404:
                return (None,)
            job = answer.json()
            return (job,) if job["finished_at"] else None

        return until(done, why=f"check {number} did not end")[0]


def children(system, job):
    return system.http.get("/v1/jobs", params={"parent": job["id"]}).json()["jobs"]


def test_only_new_entries_of_a_subscription_become_jobs(system, world, grow, subscribe):
    grow(3)
    feed = subscribe(world.url(FEED))
    assert feed.wait(1) is None  # a check that finds nothing new leaves no job behind
    assert feed.seen() == 3
    grow(5)
    feed.check()
    found = feed.wait(2)
    assert found["status"] == "SUCCESS", found
    new = children(system, found)
    assert [job["status"] for job in new] == ["SUCCESS"] * 2
    feed.check()
    assert feed.wait(3) is None
    assert feed.seen() == 5


def test_backfill_takes_what_is_there(system, world, grow, subscribe):
    grow(2)
    found = subscribe(world.url(FEED), backfill=True).wait(1)
    assert found["status"] == "SUCCESS", found
    assert len(children(system, found)) == 2


def test_a_single_media_is_no_list(world, subscribe):
    job = subscribe(world.url("/mp4/plain.mp4")).wait(1)
    assert job["status"] == "FAILED"
    assert job["error"]["code"] == "no_media"


def test_a_schedule_submits_its_job(system, world):
    body = {
        "name": f"s {time.time_ns()}",
        "cron": "0 3 * * *",
        "timezone": "Asia/Tokyo",
        "job": {"url": world.url("/clips/77/clip.mp4?bytes=300000"), "preset": "original"},
    }
    made = system.http.post("/v1/schedules", json=body).json()
    assert {m["local"][10:] for m in made["next"]} == {"T03:00:00+09:00"}
    assert {m["utc"][10:19] for m in made["next"]} == {"T18:00:00"}
    link = f"/v1/schedules/{made['id']}"
    system.http.post(f"{link}/run").raise_for_status()
    last = until(lambda: system.http.get(link).json()["last"])
    [job] = system.wait([last["job_id"]])
    assert job["status"] == "SUCCESS"
    # Fired by hand; the times that were planned stay.
    assert system.http.get(link).json()["next"] == made["next"]
    system.http.delete(link).raise_for_status()


def test_built_in_schedules_are_there(system):
    def built_in():
        found = system.http.get("/v1/schedules").json()["schedules"]
        return {s["name"] for s in found if s["kind"] == "builtin"}

    assert until(built_in) == {
        "delete-expired-files",
        "retry-transient-failures",
        "purge-old-rows",
        "sweep-temporary-files",
        "trim-dead-letters-and-streams",
    }


def at(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_not_before_in_months_and_in_seconds_survives_an_emptied_redis(system, world):
    link = world.url("/clips/78/clip.mp4?bytes=300000")
    months = system.submit(link, preset="original", not_before=at(90 * 86_400), force=True)
    due = time.time() + 4
    soon = system.submit(link, preset="original", not_before=at(4), force=True)
    assert (months["waiting_for"], soon["waiting_for"]) == ("time", "time")
    with system.redis() as client:
        client.flushall()
    while time.time() < due:
        found = system.job(soon["id"])["status"]
        # The answer may have taken until then.
        assert found == "PENDING" or time.time() >= due
        time.sleep(0.25)
    [ended] = system.wait([soon["id"]])
    assert ended["status"] == "SUCCESS"
    claimed = system.http.get(f"/v1/jobs/{soon['id']}/attempts").json()["attempts"][0]["claimed_at"]
    assert datetime.fromisoformat(claimed).timestamp() >= due - 0.1
    assert system.job(months["id"])["status"] == "PENDING"
    system.http.post(f"/v1/jobs/{months['id']}/cancel").raise_for_status()


def sluice(system, *words):
    env = {**os.environ, "SLUICE_URL": system.url}
    argv = [sys.executable, "-m", "sluice_cli", "schedules", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_the_command_line(system, world):
    name = f"cli-{time.time_ns()}"
    link = world.url("/clips/79/clip.mp4?bytes=300000")
    made = sluice(system, "add", name, link, "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    schedule_id = made.split()[0]
    assert name in sluice(system, "list")
    shown = sluice(system, "show", schedule_id)
    assert shown.count("next") == 3
    assert "T02:30:00+0" in shown
    assert "next -" in sluice(system, "change", schedule_id, "--disable")
    sluice(system, "remove", schedule_id)
    assert name not in sluice(system)
