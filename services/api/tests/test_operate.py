"""Steering over HTTP: queues, workers, what operators did, and what they see."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_core.adapters.db import access, audit, steering
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain import keys
from sluice_core.domain.lanes import Actor
from sluice_testing import factories
from sluice_testing.process import free_port

LINK = {"url": "https://media.example/film"}
QUEUE = "parse.default"
SECRET = "of-the-callbacks"  # noqa: S105  # none
MakeKey = Callable[..., dict[str, str]]
#: One database is enough where no statement of its own is under test.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def queue(client: FlaskClient, name: str = QUEUE) -> dict[str, Any]:
    queues = client.get("/v1/queues").get_json()["queues"]
    found: dict[str, Any] = next(q for q in queues if q["name"] == name)
    return found


def trail(client: FlaskClient, **query: str) -> list[tuple[str, str | None]]:
    entries = client.get("/v1/audit", query_string=query).get_json()["entries"]
    return [(e["action"], e["target"]) for e in entries]


class TestQueues:
    def test_a_paused_queue_says_so_everywhere_until_it_is_resumed(
        self, client: FlaskClient, deps: Deps
    ) -> None:
        job = client.post("/v1/jobs", json=LINK).get_json()
        assert deps.publisher.flush(60)
        for changed in (True, False):
            answer = client.post(f"/v1/queues/{QUEUE}/pause")
            assert answer.status_code == 200
            assert answer.get_json() == {"name": QUEUE, "paused": True, "changed": changed}
        assert deps.broker.paused() == {QUEUE}
        # Redis may forget; the database does not.
        deps.broker.client.flushdb()
        shown = queue(client)
        assert (shown["paused"], shown["paused_by"]) == (True, "anybody")
        assert shown["paused_at"].endswith("Z")
        assert client.get("/v1/stats").get_json()["paused"] == [QUEUE]
        assert client.get(job["links"]["self"]).get_json()["step"] == "waiting: the queue is paused"
        said = client.get(f"{job['links']['self']}/explain").get_json()["sentences"]
        assert any(f"The queue {QUEUE} is paused" in sentence for sentence in said)
        for changed in (True, False):
            answer = client.post(f"/v1/queues/{QUEUE}/resume")
            assert answer.get_json() == {"name": QUEUE, "paused": False, "changed": changed}
        assert not queue(client)["paused"]
        assert client.get(job["links"]["self"]).get_json()["step"] == "waiting for a worker"
        # Twice is once, in the trail too.
        assert trail(client) == [("queue.resume", QUEUE), ("queue.pause", QUEUE)]

    @on_sqlite
    @pytest.mark.parametrize("name", ["parse", "parse.none", "settle.default", "x" * 64, "%00"])
    def test_an_unknown_queue(self, client: FlaskClient, name: str) -> None:
        for what in ("pause", "resume"):
            answer = client.post(f"/v1/queues/{name}/{what}")
            assert answer.status_code in (404, 422)
            assert answer.get_json()["code"] in ("not_found", "invalid_request")
        assert trail(client) == []

    @on_sqlite
    def test_pausing_needs_no_redis(self, make_app: Callable[..., Flask]) -> None:
        away = f"redis://127.0.0.1:{free_port()}/0"
        client = make_app(SLUICE_REDIS_URL=away).test_client()
        assert client.post(f"/v1/queues/{QUEUE}/pause").status_code == 200
        assert client.get("/v1/stats").get_json()["paused"] == [QUEUE]
        # What Redis alone knows is no zero.
        assert client.get("/v1/queues").status_code == 503

    def test_what_came_and_went_within_a_minute(self, client: FlaskClient, deps: Deps) -> None:
        deps.database.write(lambda c: factories.run_at(c, Actor.DOWNLOAD, now=time.time()))
        client.post("/v1/jobs", json=LINK)
        shown = queue(client)
        assert (shown["in_per_minute"], shown["out_per_minute"]) == (2, 1)
        shown = queue(client, "download.default")
        assert (shown["in_per_minute"], shown["out_per_minute"]) == (1, 1)


@on_sqlite
class TestWorkers:
    @pytest.fixture
    def worker(self, deps: Deps, engine: sa.Engine) -> str:
        """What a real worker says of itself, and a run of its."""
        with write(engine) as connection:
            run = factories.run_at(connection, Actor.DOWNLOAD, now=time.time())
            connection.execute(
                sa.text("UPDATE jobs SET title = 'Film', percent = 40, waiting_for = NULL")
            )
        said = {
            "stage": "download",
            "since": time.time() - 60,
            "jobs": run.job.id,
            "memory": 50_000_000,
            "draining": 0,
            "standby": "",
            "versions": json.dumps({"sluice": "1.2.3", "yt-dlp": "2026.1.1"}),
        }
        deps.signals.hset(keys.worker("pod-download-1-AAAAAA"), mapping=said)
        return "pod-download-1-AAAAAA"

    def test_what_each_runs_and_how_far(self, client: FlaskClient, worker: str) -> None:
        [shown] = client.get("/v1/workers").get_json()["workers"]
        assert shown["id"] == worker
        assert 59 < shown["alive_seconds"] < 90
        assert shown["memory_bytes"] == 50_000_000
        [run] = shown["runs"]
        assert run["job_id"] == shown["jobs"][0]
        assert (run["title"], run["step"], run["percent"]) == ("Film", "downloading 40 %", 40)
        stats = client.get("/v1/stats").get_json()
        assert "1.2.3" in stats["versions"]["sluice"]
        assert stats["versions"]["yt-dlp"][0] == "2026.1.1"

    def test_drain_one(self, client: FlaskClient, worker: str, engine: sa.Engine) -> None:
        for changed in (True, False):
            answer = client.post(f"/v1/workers/{worker}/drain")
            assert answer.status_code == 202
            assert answer.get_json() == {"id": worker, "draining": True, "changed": changed}
        assert client.get("/v1/workers").get_json()["workers"][0]["draining"]
        with read(engine) as connection:
            assert steering.wishes_for(connection, worker).drain
            assert not steering.wishes_for(connection, "another").drain
        assert trail(client) == [("worker.drain", worker)]

    def test_a_worker_that_is_not_there(self, client: FlaskClient) -> None:
        answer = client.post("/v1/workers/nobody/drain")
        assert answer.status_code == 404
        assert "no worker nobody" in answer.get_json()["detail"]
        assert trail(client) == []


class TestAudit:
    def test_pages_filters_and_who(
        self, make_app: Callable[..., Flask], make_key: MakeKey, engine: sa.Engine
    ) -> None:
        client = make_app(SLUICE_API_KEYS_REQUIRED="true").test_client()
        boss = make_key(Scope.OPERATE)
        with read(engine) as connection:
            [key] = access.list_keys(connection)
        for _ in range(2):
            client.post(f"/v1/queues/{QUEUE}/pause", headers=boss)
            client.post(f"/v1/queues/{QUEUE}/resume", headers=boss)
        made = client.post("/v1/keys", json={"name": "n", "scopes": ["read"]}, headers=boss)
        assert made.status_code == 201
        first = client.get("/v1/audit?limit=3", headers=boss).get_json()
        assert [e["action"] for e in first["entries"]] == [
            "key.create",
            "queue.resume",
            "queue.pause",
        ]
        assert {(e["actor"], e["api_key_id"]) for e in first["entries"]} == {("test", key.id)}
        assert first["entries"][0]["detail"] == {"name": "n", "scopes": ["read"]}
        # No key's text is ever kept.
        assert made.get_json()["key"] not in json.dumps(first)
        rest = client.get(f"/v1/audit?cursor={first['next_cursor']}", headers=boss).get_json()
        assert len(rest["entries"]) == 2
        assert rest["next_cursor"] is None
        only = client.get("/v1/audit?action=key", headers=boss).get_json()["entries"]
        assert [e["action"] for e in only] == ["key.create"]
        other = made.get_json()["id"]
        assert client.get(f"/v1/audit?key={other}", headers=boss).get_json()["entries"] == []

    def test_the_oldest_go(self, engine: sa.Engine) -> None:
        with write(engine) as connection:
            for n in range(5):
                audit.note(connection, audit.Actor("a"), "queue.pause", now=n, target=str(n))
                time.sleep(0.002)
            assert audit.trim(connection, cap=3) == 2
            kept = audit.list_page(connection, before_id=None, limit=9)
            assert [e.target for e in kept] == ["4", "3", "2"]
            assert audit.trim(connection, cap=3) == 0

    @on_sqlite
    def test_what_an_operator_does_to_others_jobs(
        self, make_app: Callable[..., Flask], make_key: MakeKey
    ) -> None:
        client = make_app(SLUICE_API_KEYS_REQUIRED="true").test_client()
        boss, other = make_key(Scope.OPERATE), make_key(Scope.SUBMIT, Scope.READ)
        job = client.post("/v1/jobs", json=LINK, headers=other).get_json()
        client.post(job["links"]["cancel"], headers=other)
        assert client.get("/v1/audit", headers=boss).get_json()["entries"] == []
        client.post(job["links"]["retry"], headers=boss)
        client.delete(job["links"]["self"], headers=boss)
        entries = client.get("/v1/audit", headers=boss).get_json()["entries"]
        assert [(e["action"], e["target"]) for e in entries] == [
            ("job.delete", job["id"]),
            ("job.retry", job["id"]),
        ]

    def test_what_an_operator_does_to_schedules(
        self, make_app: Callable[..., Flask], make_key: MakeKey
    ) -> None:
        client = make_app(SLUICE_API_KEYS_REQUIRED="true").test_client()
        boss, other = make_key(Scope.OPERATE), make_key(Scope.SUBMIT, Scope.READ)
        nightly = {"name": "nightly", "cron": "30 2 * * *", "job": LINK}

        def steer(kind: str, body: dict[str, Any], headers: dict[str, str]) -> str:
            made: dict[str, Any] = client.post(f"/v1/{kind}", json=body, headers=headers).get_json()
            link = f"/v1/{kind}/{made['id']}"
            change = {"every_seconds": 90, "enabled": True}
            for answer in (
                client.patch(link, json=change, headers=headers),
                client.patch(link, json={"cron": "nonsense"}, headers=headers),
                client.post(f"/v1/schedules/{made['id']}/run", headers=headers),
                client.delete(link, headers=headers),
                client.delete(link, headers=headers),
            ):
                assert answer.status_code in (200, 202, 404, 422), answer.get_json()
            return str(made["id"])

        # Their own: nobody may push what operators did out of the trail.
        steer("schedules", nightly, other)
        assert client.get("/v1/audit", headers=boss).get_json()["entries"] == []
        schedule = steer("schedules", nightly, boss)
        subscription = steer("subscriptions", LINK, boss)
        entries = client.get("/v1/audit", headers=boss).get_json()["entries"]
        # Refused ones, and what is gone already, leave nothing.
        assert [(e["action"], e["target"]) for e in reversed(entries)] == [
            (f"{kind}.{what}", target)
            for kind, target in (("schedule", schedule), ("subscription", subscription))
            for what in ("create", "change", "run", "delete")
        ]
        assert {e["actor"] for e in entries} == {"test"}
        asked = [e["detail"].get("asked") for e in entries if e["action"] == "schedule.change"]
        assert asked == [{"every_seconds": 90, "enabled": True}]
        assert [e["detail"]["name"] for e in entries[4:]] == ["nightly"] * 4
        assert (
            client.get("/v1/audit?action=schedule", headers=boss).get_json()["entries"]
            == (entries[4:])
        )

    @on_sqlite
    def test_of_a_changed_job_the_trail_keeps_no_link(self, client: FlaskClient) -> None:
        body = {"name": "n", "every_seconds": 60, "job": LINK}
        made = client.post("/v1/schedules", json=body).get_json()
        secret = {"url": "https://media.example/?token=hush"}
        assert client.patch(f"/v1/schedules/{made['id']}", json={"job": secret}).status_code == 200
        entries = client.get("/v1/audit").get_json()["entries"]
        assert entries[0]["detail"] == {"name": "n", "asked": {"job": "changed"}}
        assert "hush" not in json.dumps(entries)


@on_sqlite
def test_stats_tell_who_leads_and_operators_the_settings_without_secrets(
    make_app: Callable[..., Flask], make_key: MakeKey, engine: sa.Engine
) -> None:
    app = make_app(SLUICE_API_KEYS_REQUIRED="true", SLUICE_CALLBACK_SECRET=SECRET)
    client = app.test_client()
    boss, reader = make_key(Scope.OPERATE), make_key(Scope.READ)
    stats = client.get("/v1/stats", headers=boss).get_json()
    assert stats["leader"] == {"holder": None, "fence": 0, "beat": 0}
    with write(engine) as connection:
        connection.execute(
            sa.text("INSERT INTO leases (name, holder, fence, beat) VALUES ('scheduler','s1',3,9)")
        )
    stats = client.get("/v1/stats", headers=boss).get_json()
    assert stats["leader"] == {"holder": "s1", "fence": 3, "beat": 9}
    assert "SLUICE_CALLBACK_SECRET" in stats["settings"]
    assert SECRET not in json.dumps(stats)
    assert client.get("/v1/stats", headers=reader).get_json()["settings"] is None


@on_sqlite
class TestKeys:
    def test_made_listed_and_revoked(self, client: FlaskClient) -> None:
        asked = {"name": "ci", "scopes": ["submit", "read"], "max_active_jobs": 5}
        made = client.post("/v1/keys", json=asked).get_json()
        assert made["key"].startswith("sluice_")
        [listed] = client.get("/v1/keys").get_json()["keys"]
        assert "key" not in listed
        assert (listed["name"], listed["scopes"]) == ("ci", ["read", "submit"])
        assert (listed["requests_per_minute"], listed["max_active_jobs"]) == (None, 5)
        headers = {"Authorization": f"Bearer {made['key']}"}
        assert client.get("/v1/jobs", headers=headers).status_code == 200
        assert client.delete(f"/v1/keys/{made['id']}").status_code == 200
        assert client.get("/v1/jobs", headers=headers).status_code == 401
        again = client.delete(f"/v1/keys/{made['id']}")
        assert (again.status_code, again.get_json()["code"]) == (404, "not_found")
        assert trail(client) == [("key.revoke", made["id"]), ("key.create", made["id"])]

    @pytest.mark.parametrize(
        "body",
        [{}, {"name": "n"}, {"name": "n", "scopes": []}, {"name": "n", "scopes": ["root"]},
         {"name": "", "scopes": ["read"]}, {"name": "n", "scopes": ["read"], "max_active_jobs": -1},
         {"name": "n", "scopes": ["read"], "more": 1}],
    )  # fmt: skip
    def test_bad_requests(self, client: FlaskClient, body: dict[str, Any]) -> None:
        assert client.post("/v1/keys", json=body).status_code == 422
        assert client.get("/v1/keys").get_json()["keys"] == []


def test_a_redis_that_is_away_is_no_empty_list_of_workers(make_app: Callable[..., Flask]) -> None:
    client = make_app(SLUICE_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0").test_client()
    assert client.get("/v1/workers").status_code == 503
    assert client.post("/v1/workers/w/drain").status_code == 503
