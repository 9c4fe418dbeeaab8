"""Schedules and subscriptions over HTTP, on both databases."""

from __future__ import annotations

import threading

import pytest

from sluice_core.adapters.db import schedules, subscriptions
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.schedules import NewSchedule
from sluice_core.domain.schedule import Kind, Trigger
from sluice_testing.database import until_blocked

JOB = {"url": "https://media.example/list", "preset": "720p", "priority": "low"}
NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "job": JOB}
FEED = {"url": "https://media.example/feed"}


def post(client, body, what="schedules", **options):
    return client.post(f"/v1/{what}", json=body, **options)


def test_a_schedule_is_added_and_shown_with_its_next_firings(client):
    answer = post(client, NIGHTLY)
    assert answer.status_code == 201, answer.get_json()
    made = answer.get_json()
    assert answer.headers["Location"] == f"/v1/schedules/{made['id']}"
    assert (made["kind"], made["enabled"], made["missed"]) == ("submit", True, "skip")
    assert [m["local"][11:16] for m in made["next"]] == ["02:30"] * 3
    assert {m["utc"][11:16] for m in made["next"]} <= {"00:30", "01:30", "01:00"}
    assert made["job"]["url"] == JOB["url"]
    assert (made["job"]["preset"], made["job"]["priority"]) == ("720p", "low")
    assert client.get(f"/v1/schedules/{made['id']}").get_json() == made
    assert client.get("/v1/schedules").get_json()["schedules"] == [made]
    assert client.get(f"/v1/schedules/{made['id']}/firings").get_json() == {"firings": []}


@pytest.mark.parametrize(
    "change",
    [
        {"cron": None},
        {"every_seconds": 60},
        {"cron": "61 * * * *"},
        {"cron": "* * * *"},
        {"cron": "0 0 31 2 *"},
        {"timezone": "Mars/Olympus"},
        {"timezone": "../etc/passwd"},
        {"cron": None, "every_seconds": 0.01},
        {"cron": None, "every_seconds": 1e12},
        {"missed": "maybe"},
        {"name": ""},
        {"name": "x" * 129},
        {"job": {**JOB, "url": "file:///etc/passwd"}},
        {"job": {**JOB, "url": "http://127.0.0.1/"}},
        {"job": {**JOB, "preset": "none"}},
        {"job": {**JOB, "not_before": "2030-01-01T00:00:00Z"}},
        {"job": {**JOB, "callback_url": "http://10.0.0.1/"}},
        {"extra": 1},
    ],
)
def test_wrong_is_refused_and_nothing_stored(client, change):
    body = {k: v for k, v in {**NIGHTLY, **change}.items() if v is not None}
    answer = post(client, body)
    assert answer.status_code == 422, answer.get_json()
    assert answer.get_json()["detail"]
    assert client.get("/v1/schedules").get_json()["schedules"] == []


def test_names_are_unique(client):
    made = post(client, NIGHTLY).get_json()
    assert post(client, NIGHTLY).status_code == 409
    assert post(client, {**NIGHTLY, "name": "purge-old-rows"}).status_code == 409
    other = post(client, {**NIGHTLY, "name": "other"}).get_json()
    answer = client.patch(f"/v1/schedules/{other['id']}", json={"name": made["name"]})
    assert answer.status_code == 409


def test_of_two_that_take_a_name_at_once_one_is_refused(engine):
    with write(engine) as c:
        new = [NewSchedule(name, Kind.SUBMIT, Trigger(every=60.0), 1.0) for name in "ab"]
        one, two = (schedules.add(c, schedule, now=1.0) for schedule in new)
    changed = []

    def rename():
        with write(engine) as c:
            changed.append(schedules.change(c, two.id, {"name": "c"}, now=2.0))

    thread = threading.Thread(target=rename)
    with write(engine) as c:
        assert schedules.change(c, one.id, {"name": "c"}, now=2.0)
        thread.start()
        until_blocked(engine)
    thread.join(60)
    assert changed == [None]


def test_changed_while_running(client):
    made = post(client, NIGHTLY).get_json()
    link = f"/v1/schedules/{made['id']}"
    changed = client.patch(link, json={"every_seconds": 90, "missed": "once"}).get_json()
    assert (changed["cron"], changed["every_seconds"], changed["missed"]) == (None, 90, "once")
    assert changed["next"] != made["next"]
    off = client.patch(link, json={"enabled": False}).get_json()
    assert off["next"] == []
    assert client.post(f"{link}/run").status_code == 409
    job = {**JOB, "preset": "best"}
    on = client.patch(link, json={"enabled": True, "job": job}).get_json()
    assert len(on["next"]) == 3
    assert on["job"]["preset"] == "best"
    assert client.patch(link, json={"cron": "nonsense"}).status_code == 422
    assert client.patch(link, json={"cron": "* * * * *", "every_seconds": 5}).status_code == 422
    assert client.get(link).get_json() == on


def test_run_now(client, deps):
    made = post(client, NIGHTLY).get_json()
    assert client.post(f"/v1/schedules/{made['id']}/run").status_code == 202
    due = deps.database.read(lambda c: schedules.due_ids(c, now=deps.clock(), limit=10))
    assert due == [made["id"]]


def test_deleted(client):
    made = post(client, NIGHTLY).get_json()
    link = f"/v1/schedules/{made['id']}"
    assert client.delete(link).get_json() == {"id": made["id"], "deleted": True}
    assert client.get(link).status_code == 404
    assert client.delete(link).status_code == 404


def test_built_in_ones_can_be_moved_and_not_removed(client, engine):
    new = NewSchedule("purge-old-rows", Kind.BUILTIN, Trigger(every=60.0), 1.0)
    with write(engine) as c:
        built_in = schedules.add(c, new, now=1.0)
    link = f"/v1/schedules/{built_in.id}"
    shown = client.get(link).get_json()
    assert shown["help"]
    assert shown["job"] is None
    assert client.patch(link, json={"every_seconds": 5}).get_json()["every_seconds"] == 5
    assert client.patch(link, json={"name": "mine"}).status_code == 409
    assert client.patch(link, json={"job": JOB}).status_code == 409
    assert client.delete(link).status_code == 409


def test_a_subscription_is_due_at_once_and_hourly(client, deps):
    answer = post(client, FEED, "subscriptions")
    assert answer.status_code == 201, answer.get_json()
    made = answer.get_json()
    assert (made["kind"], made["name"], made["url"]) == ("subscription", FEED["url"], FEED["url"])
    assert (made["every_seconds"], made["backfill"], made["entries_seen"]) == (3600, False, 0)
    due = deps.database.read(lambda c: schedules.due_ids(c, now=deps.clock(), limit=10))
    assert due == [made["id"]]
    assert client.get("/v1/schedules").get_json()["schedules"] == []
    deps.database.write(lambda c: subscriptions.admit(c, made["id"], {"a" * 64, "b" * 64}, now=1.0))
    [listed] = client.get("/v1/subscriptions").get_json()["subscriptions"]
    assert listed["entries_seen"] == 2
    link = f"/v1/subscriptions/{made['id']}"
    changed = client.patch(link, json={"preset": "audio-mp3", "cron": "0 6 * * *"}).get_json()
    assert (changed["preset"], changed["cron"]) == ("audio-mp3", "0 6 * * *")
    assert client.patch(link, json={"preset": "none"}).status_code == 422
    assert client.delete(link).status_code == 200
    assert client.get(link).status_code == 404
    counts = deps.database.read(lambda c: subscriptions.counts(c, [made["id"]]))
    assert counts == {}


def test_what_fires_keeps_what_it_was_told_of_gaps(client, deps):
    made = [
        post(client, {**FEED, "allow_gaps": True}, "subscriptions").get_json(),
        post(client, {"name": "n", "every_seconds": 60, "job": {**JOB, "allow_gaps": True}}),
    ]
    ids = [made[0]["id"], made[1].get_json()["id"]]
    found = [deps.database.read(lambda c, one=one: schedules.get(c, one)) for one in ids]
    assert [schedule.request.allow_gaps for schedule in found] == [True, True]


@pytest.mark.parametrize(
    "body", [{}, {"url": "ftp://a.example/"}, {**FEED, "preset": "x"}, {**FEED, "cron": "x"}]
)
def test_a_wrong_subscription(client, body):
    assert post(client, body, "subscriptions").status_code == 422
    assert client.get("/v1/subscriptions").get_json()["subscriptions"] == []


def test_whose_they_are(make_app, make_key):
    client = make_app(SLUICE_API_KEYS_REQUIRED="true").test_client()
    mine, other = make_key(Scope.SUBMIT, Scope.READ), make_key(Scope.SUBMIT, Scope.READ)
    boss, reader = make_key(Scope.OPERATE), make_key(Scope.READ)
    made = post(client, NIGHTLY, headers=mine).get_json()
    link = f"/v1/schedules/{made['id']}"
    assert client.get(link, headers=mine).status_code == 200
    assert client.get(link, headers=boss).status_code == 200
    for method in ("get", "delete"):
        assert getattr(client, method)(link, headers=other).status_code == 404
    assert client.get("/v1/schedules", headers=other).get_json()["schedules"] == []
    assert post(client, {**NIGHTLY, "name": "b"}, headers=reader).status_code == 403
    assert client.get(link).status_code == 401


def test_schedules_are_capped(client, monkeypatch):
    monkeypatch.setattr(schedules, "CAP", 2)
    assert post(client, NIGHTLY).status_code == 201
    assert post(client, FEED, "subscriptions").status_code == 201
    answer = post(client, {**NIGHTLY, "name": "third"})
    assert answer.status_code == 409
    assert "2 schedules" in answer.get_json()["detail"]
