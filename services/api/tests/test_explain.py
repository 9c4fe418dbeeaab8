"""An explanation joins three kinds of state, and does without the broker's."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_core.adapters.db import outbox
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain import keys
from sluice_core.domain.lanes import Actor
from sluice_testing import factories
from sluice_testing.redis import RedisServer

LINK = {"url": "https://media.example/film"}


def test_a_message_is_followed_from_queue_to_worker(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    first = client.post("/v1/jobs", json={**LINK, "force": True}).get_json()
    job = client.post("/v1/jobs", json={**LINK, "force": True}).get_json()
    assert deps.publisher.flush(60)
    deps.signals.hset(keys.worker("w1"), mapping={"stage": "parse", "since": 1, "jobs": ""})
    told = client.get(f"/v1/jobs/{job['id']}/explain").get_json()
    (message,) = told["messages"]
    assert (message["place"], message["position"], message["worker"]) == ("waiting", 2, None)
    assert told["broker_reachable"] is True
    assert (told["status"], told["waiting_for"]) == ("PENDING", "worker")
    assert any("of which 1 live" in words for words in told["sentences"])

    rules = {"room": 2, "starve_ms": 60_000, "starve_every": 10, "turns": "parse"}
    deps.broker.scripts.fetch("w1", idle=2, lanes=(("parse.default", False),), **rules)
    told = client.get(f"/v1/jobs/{job['id']}/explain").get_json()
    (message,) = told["messages"]
    assert (message["place"], message["position"], message["worker"]) == ("in_flight", None, "w1")

    with write(engine) as connection:
        factories.start_run(connection, job["id"], worker="w1", now=time.time())
    told = client.get(f"/v1/jobs/{job['id']}/explain").get_json()
    assert told["messages"] == []
    (attempt,) = told["attempts"]
    assert attempt["message_id"] == message["message_id"]
    assert (attempt["place"], attempt["redeliveries"], attempt["outcome"]) == ("in_flight", 0, None)
    assert any("in flight with w1" in words for words in told["sentences"])
    assert first["id"] != job["id"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestOnOneDatabase:
    def test_redis_away(
        self, make_app: Callable[..., Flask], own_redis: RedisServer, engine: sa.Engine
    ) -> None:
        client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
        job = client.post("/v1/jobs", json=LINK).get_json()
        own_redis.stop()
        response = client.get(f"/v1/jobs/{job['id']}/explain")
        assert response.status_code == 200
        told = response.get_json()
        assert told["broker_reachable"] is False
        assert told["messages"][0]["place"] is None
        assert "Redis does not answer" in told["sentences"][-1]
        with read(engine) as connection:
            (row,) = outbox.of_job(connection, job["id"])
        assert told["messages"][0]["message_id"] == row.id

    def test_a_collection_tells_of_its_children(
        self, client: FlaskClient, engine: sa.Engine
    ) -> None:
        with write(engine) as connection:
            parent, _ = factories.make_collection(connection, 3, now=time.time())
        told = client.get(f"/v1/jobs/{parent.id}/explain").get_json()
        assert told["children"]["active"] == 3
        assert any("Of 3 children 3 are under way" in words for words in told["sentences"])

    def test_other_peoples_jobs_are_unknown(
        self, client: FlaskClient, engine: sa.Engine, make_key: Callable[..., dict[str, str]]
    ) -> None:
        with write(engine) as connection:
            run = factories.run_at(connection, Actor.PARSE, now=time.time())
        path = f"/v1/jobs/{run.job.id}/explain"
        assert client.get(path, headers=make_key(Scope.READ)).status_code == 404
        assert client.get(path, headers=make_key(Scope.OPERATE)).status_code == 200
        assert client.get("/v1/jobs/x/explain").status_code == 422
