from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from structlog.testing import capture_logs

from sluice_api.deps import Deps
from sluice_core.adapters.db import runs
from sluice_core.adapters.db.engine import write
from sluice_core.domain import keys
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_testing import factories
from sluice_testing.redis import RedisServer

MakeApp = Callable[..., Flask]


def queue(client: FlaskClient, name: str) -> dict[str, object]:
    found: dict[str, dict[str, object]] = {
        q["name"]: q for q in client.get("/v1/queues").get_json()["queues"]
    }
    return found[name]


def test_queues_tell_what_waits_where(client: FlaskClient, deps: Deps, engine: sa.Engine) -> None:
    client.post("/v1/jobs", json={"url": "https://media.example/1"})
    assert deps.publisher.flush(60)
    now = time.time()
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.DOWNLOAD, now=now)
        error = JobError("network", "transient", "x")
        runs.retry_later(connection, run, error, due_at=now + 60, now=now)
        factories.make_job(connection, now=now - 10)
    parse, download = queue(client, "parse.default"), queue(client, "download.default")
    assert (parse["waiting"], parse["due"], parse["delayed"]) == (1, 1, 0)
    assert (download["waiting"], download["due"], download["delayed"]) == (0, 0, 1)
    shown = client.get(f"/v1/jobs/{run.job.id}").get_json()
    assert (shown["waiting_for"], shown["error"]["code"]) == ("retry", "network")
    assert shown["retry_at"] is not None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_workers_are_those_that_say_so(client: FlaskClient, deps: Deps) -> None:
    said: dict[Any, Any] = {
        "stage": "parse",
        "since": time.time(),
        "pid": 1,
        "jobs": "A B",
    }
    deps.signals.hset(keys.worker("w1"), mapping=said)
    (worker,) = client.get("/v1/workers").get_json()["workers"]
    assert (worker["id"], worker["stage"], worker["jobs"]) == ("w1", "parse", ["A", "B"])
    assert worker["since"].endswith("Z")
    stats = client.get("/v1/stats").get_json()
    assert stats["workers"] == {"parse": 1, "download": 0, "transcode": 0}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_failed_reading_is_no_zero(make_app: MakeApp, own_redis: RedisServer) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    assert client.get("/readyz").status_code == 200
    own_redis.kill9()
    for path in ("/v1/queues", "/v1/workers"):
        response = client.get(path)
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
    stats = client.get("/v1/stats").get_json()
    assert (stats["broker_reachable"], stats["workers"], stats["waiting"]) == (False, None, None)
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert ready.get_json()["parts"]["database"] == "ok"
    assert ready.get_json()["parts"]["redis"] != "ok"
    # Links are taken without it, so balancers may leave it out.
    without = client.get("/readyz?exclude=redis")
    assert without.status_code == 200
    assert set(without.get_json()["parts"]) == {"database", "storage"}
    assert client.get("/readyz?exclude=everything").status_code == 422
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_database_that_takes_no_writes_is_not_ready(make_app: MakeApp, engine: sa.Engine) -> None:
    with write(engine) as connection:
        name = connection.execute(sa.text("SELECT current_database()")).scalar_one()
        connection.execute(
            sa.text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        )
    client = make_app().test_client()
    ready = client.get("/readyz?exclude=redis&exclude=storage")
    assert ready.status_code == 503
    assert "read-only" in ready.get_json()["parts"]["database"]
    # What only reads goes on; what writes is told to come again.
    assert client.get("/v1/jobs").status_code == 200
    refused = client.post("/v1/jobs", json={"url": "https://media.example/1"})
    assert (refused.status_code, refused.get_json()["code"]) == (503, "unavailable")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_probes_reason_is_logged_once(make_app: MakeApp, own_redis: RedisServer) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    with capture_logs() as said:
        client.get("/readyz")
        own_redis.kill9()
        client.get("/readyz")
        client.get("/readyz")
        own_redis.restart_empty()
        client.get("/readyz")
    told = [(line["event"], line["store"]) for line in said if "store" in line]
    assert told == [("not_ready", "redis"), ("ready_again", "redis")]


def test_stats_count_jobs_by_state(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as connection:
        factories.make_job_in(connection, Status.SUCCESS, now=time.time())
        factories.make_job(connection, now=time.time() - 10)
    stats = client.get("/v1/stats").get_json()
    assert (stats["jobs"]["SUCCESS"], stats["jobs"]["PENDING"], stats["jobs"]["FAILED"]) == (
        1,
        1,
        0,
    )
    assert stats["outbox_pending"] == 1
    assert stats["outbox_lag_seconds"] > 9


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_presets_have_words(client: FlaskClient) -> None:
    answer = client.get("/v1/presets").get_json()
    names = [p["name"] for p in answer["presets"]]
    assert answer["default"] in names
    assert {"best", "original", "720p", "audio-m4a", "audio-mp3"} <= set(names)


def test_a_storage_that_hangs_is_told_within_seconds(
    serve: Callable[..., Any], unanswering: str
) -> None:
    """It takes connections and never answers; its own tries would last for minutes."""
    served = serve(SLUICE_STORAGE_URL=unanswering)
    with served.client() as client:
        ready = client.get("/readyz", timeout=60)
        assert ready.status_code == 503
        parts = ready.json()["parts"]
        assert "did not answer within 10 s" in parts.pop("storage")
        assert parts == {"database": "ok", "redis": "ok"}


@pytest.fixture
def unanswering() -> Iterator[str]:
    """A storage's address; the kernel takes connections for a program that never looks."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = quote(f"http://127.0.0.1:{silent.getsockname()[1]}", safe="")
        yield f"s3://bucket/?endpoint={endpoint}&access_key=a&secret_key=b"
