from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_core.adapters.db import outbox, runs, steering
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.lanes import Actor
from sluice_testing import factories
from sluice_testing.redis import RedisServer

MakeApp = Callable[..., Flask]


def asked(client: FlaskClient, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/demand", query_string=query).get_json()
    return found


def test_demand_is_what_waits_what_runs_and_what_is_due(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    client.post("/v1/jobs", json={"url": "https://media.example/1", "priority": "high"})
    assert deps.publisher.flush(60)
    now = time.time()
    with write(engine) as connection:
        factories.run_at(connection, Actor.PARSE, now=now)
        factories.make_job(connection, now=now - 60)
        # A retry for later wants nothing yet, a run of another stage nothing of this pool.
        later = factories.run_at(connection, Actor.PARSE, now=now)
        runs.retry_later(connection, later, factories.ERROR, due_at=now + 60, now=now)
        factories.run_at(connection, Actor.DOWNLOAD, now=now)
    expected = {"demand": 3, "waiting": 1, "due": 1, "running": 1}
    assert asked(client, pool="parser") == {"pool": "parser", **expected}
    assert asked(client, pool="parse", lanes="high, bulk")["demand"] == 1
    assert asked(client, pool="downloader")["demand"] == 1
    assert asked(client, pool="transcoder")["demand"] == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_paused_lane_gives_nothing_to_grow_for(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    client.post("/v1/jobs", json={"url": "https://media.example/1"})
    assert deps.publisher.flush(60)
    with write(engine) as connection:
        factories.run_at(connection, Actor.PARSE, now=time.time())
        steering.pause(connection, "parse.default", by="a test", now=time.time())
    assert asked(client, pool="parser") == {
        "pool": "parser",
        "demand": 1,
        "waiting": 0,
        "due": 0,
        "running": 1,
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_is_asked_wrongly(client: FlaskClient) -> None:
    assert client.get("/v1/demand").status_code == 422
    unknown = client.get("/v1/demand", query_string={"pool": "notify"})
    assert (unknown.status_code, unknown.get_json()["code"]) == (404, "not_found")
    lane = client.get("/v1/demand", query_string={"pool": "parse", "lanes": "fast"})
    assert (lane.status_code, lane.get_json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_no_scheduler_has_marked_counts_once(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    for number in range(3):
        client.post("/v1/jobs", json={"url": f"https://media.example/{number}"})
    assert deps.publisher.flush(60)
    with write(engine) as connection:
        connection.execute(sa.update(outbox_table).values(due_at=time.time() - 60))
    assert asked(client, pool="parser")["demand"] == 3
    # Two that are really missing from Redis do count.
    with write(engine) as connection:
        for _ in range(2):
            factories.make_job(connection, now=time.time() - 60)
    assert asked(client, pool="parser") | {"pool": ""} == {
        "pool": "",
        "demand": 5,
        "waiting": 3,
        "due": 2,
        "running": 0,
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_emptied_redis_is_no_empty_pool(
    client: FlaskClient, engine: sa.Engine, redis_server: RedisServer
) -> None:
    now = time.time()
    with write(engine) as connection:
        for _ in range(3):
            job = factories.make_job(connection, now=now - 60)
            order = factories.next_order(connection, job.id)
            outbox.mark_published(connection, [order.id], now=now - 30)
    redis_server.flush()
    assert asked(client, pool="parser")["demand"] == 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_failed_reading_is_no_zero(make_app: MakeApp, own_redis: RedisServer) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    own_redis.kill9()
    answer = client.get("/v1/demand", query_string={"pool": "parser"})
    assert answer.status_code == 503
    assert "demand" not in answer.get_json()
