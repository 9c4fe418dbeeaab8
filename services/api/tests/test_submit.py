from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.app import EXTENSION
from sluice_api.deps import Deps
from sluice_api.submit import Accepted, LostRaceError, Order, place
from sluice_core.adapters import events
from sluice_core.adapters.db import collections, outbox, runs
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.adapters.db.schema import jobs
from sluice_core.domain import keys
from sluice_core.domain.job import Request
from sluice_core.domain.states import Status
from sluice_testing import factories
from sluice_testing.redis import RedisServer
from sluice_testing.waiting import fastest

MakeApp = Callable[..., Flask]
LINK = "https://media.example/film"


def submit(client: FlaskClient, url: str = LINK, *, key: str | None = None, **body: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/v1/jobs", json={"url": url, **body}, headers=headers)


def count(engine: sa.Engine) -> int:
    with read(engine) as connection:
        found: int = connection.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one()
    return found


def test_a_link_becomes_a_job_and_a_message(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    response = submit(client, preset="720p", priority="high", metadata={"k": "日本 🎬"})
    assert response.status_code == 202
    job = response.get_json()
    assert response.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["status"], job["waiting_for"], job["preset"]) == ("PENDING", "worker", "720p")
    assert job["metadata"] == {"k": "日本 🎬"}
    assert deps.publisher.flush(60)
    with read(engine) as connection:
        (row,) = outbox.of_job(connection, job["id"])
    assert row.queue == "parse.high"
    assert deps.broker.sights([(row.queue, row.id)])[0].place == "waiting"
    assert client.get(job["links"]["self"]).get_json()["queue_position"] == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_comes_in_meanwhile_is_published_in_one_piece_and_in_order(
    make_app: MakeApp, own_redis: RedisServer, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice_api.publisher.MAX_SETS", 3)
    deps: Deps = make_app(SLUICE_REDIS_URL=own_redis.url).extensions[EXTENSION]
    made = []
    for n in range(5):
        with write(engine) as connection:
            new = job_store.NewJob(Request(url=f"{LINK}/{n}"))
            made += job_store.insert_many(connection, [new], now=time.time())
    for job, row in made:
        deps.publisher.send([row], [job])
    assert deps.publisher.flush(60)
    places = deps.broker.scripts.sight([(row.queue, row.id) for _, row in made])
    assert [(place, before) for place, before, _, _ in places] == [("waiting", n) for n in range(5)]
    told = [events.decode(fields).job_id for _, fields in deps.signals.xrange(keys.EVENTS)]
    assert told == [job.id for job, _ in made]
    assert scripts_run(deps) == 3  # 3 + 2, one look


def scripts_run(deps: Deps) -> int:
    calls = deps.broker.client.info("commandstats")["cmdstat_evalsha"]
    return calls["calls"] - calls["rejected_calls"] - calls["failed_calls"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_lone_submit_is_published_at_once_and_a_rush_in_few_pieces(
    make_app: MakeApp, own_redis: RedisServer, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps: Deps = make_app(SLUICE_REDIS_URL=own_redis.url).extensions[EXTENSION]
    with write(engine) as connection:
        new = [job_store.NewJob(Request(url=f"{LINK}/{n}")) for n in range(4)]
        (first, *others) = job_store.insert_many(connection, new, now=time.time())
    monkeypatch.setattr("sluice_api.publisher.APART", 3600.0)
    deps.publisher.send([first[1]], [first[0]])
    assert deps.publisher.flush(30)
    assert scripts_run(deps) == 1
    for job, row in others:
        deps.publisher.send([row], [job])
        assert not deps.publisher.flush(0.01)
    assert scripts_run(deps) == 1
    monkeypatch.setattr("sluice_api.publisher.APART", 0.0)
    deps.publisher.close()
    deps.publisher._next = 0.0  # noqa: SLF001  # an hour later
    deps.publisher.send([], [])
    assert deps.publisher.flush(30)
    assert scripts_run(deps) == 2


def test_every_key_of_the_contract_is_there(client: FlaskClient) -> None:
    job = submit(client).get_json()
    assert set(job) >= {
        "id", "url", "status", "step", "waiting_for", "queue_position", "retry_at", "attempt",
        "priority", "preset", "progress", "title", "extractor", "duration", "thumbnail",
        "parent_id", "children", "error", "files", "created_at", "updated_at", "finished_at",
        "expires_at", "links",
    }  # fmt: skip
    assert set(job["progress"]) == {
        "percent", "bytes", "total_bytes", "bytes_per_second", "eta_seconds",
    }  # fmt: skip
    assert job["created_at"].endswith("Z")
    assert client.get(f"/v1/jobs/{job['id']}").get_json().keys() == job.keys()


def test_not_before_waits_for_its_time(client: FlaskClient, deps: Deps) -> None:
    job = submit(client, not_before="2099-01-01T00:00:00+02:00").get_json()
    assert job["waiting_for"] == "time"
    assert deps.publisher.flush(60)
    assert deps.broker.waiting(["parse.default"]) == {"parse.default": 0}


def test_the_same_request_has_one_job(client: FlaskClient, engine: sa.Engine) -> None:
    first = submit(client)
    again = submit(client)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.headers["Existing-Job"] == "true"
    assert again.get_json()["id"] == first.get_json()["id"]
    assert submit(client, preset="720p").get_json()["id"] != first.get_json()["id"]
    assert submit(client, metadata={"a": 1}).get_json()["id"] != first.get_json()["id"]
    assert submit(client, force=True).get_json()["id"] != first.get_json()["id"]
    assert count(engine) == 4


def test_spellings_of_a_link_are_the_same_request(client: FlaskClient) -> None:
    first = submit(client, "https://media.example/film")
    again = submit(client, " HTTPS://MEDIA.example:443/film ")
    assert again.get_json()["id"] == first.get_json()["id"]


def test_an_ended_job_stands_for_a_request_only_when_done(
    client: FlaskClient, engine: sa.Engine
) -> None:
    canceled = submit(client, "https://media.example/1").get_json()
    client.post(canceled["links"]["cancel"])
    assert submit(client, "https://media.example/1").status_code == 202
    done = submit(client, "https://media.example/2").get_json()
    now = time.time()
    with write(engine) as connection:
        run = factories.last_run(connection, done["id"], now=now)
        factories.finish(connection, run, now=now)
    before = client.get(done["links"]["self"]).get_json()["expires_at"]
    again = submit(client, "https://media.example/2")
    assert (again.status_code, again.get_json()["id"]) == (202, done["id"])
    assert again.get_json()["status"] == "SUCCESS"
    assert again.get_json()["files"][0]["name"] == "film.mp4"
    assert again.get_json()["expires_at"] > before


def test_a_collection_that_is_asked_for_again_keeps_its_entries(
    client: FlaskClient, engine: sa.Engine
) -> None:
    parent = submit(client, "https://media.example/list").get_json()
    now = time.time()
    with write(engine) as connection:
        run = factories.start_run(connection, parent["id"], now=now)
        entries = [{"url": "https://media.example/entry", "key": "1"}]
        [order] = collections.add_children(connection, run, entries, now=now)
        runs.expanded(connection, run, fields={}, now=now)
        factories.finish(connection, factories.last_run(connection, order.job_id), now=now)
        factories.settle(connection, parent["id"], now=now)
    again = submit(client, "https://media.example/list").get_json()
    assert (again["id"], again["status"]) == (parent["id"], "SUCCESS")
    entry = client.get(f"/v1/jobs/{order.job_id}").get_json()
    assert entry["expires_at"] == again["expires_at"]


def test_an_idempotency_key_means_one_job(client: FlaskClient, engine: sa.Engine) -> None:
    first = submit(client, key="a")
    again = submit(client, key="a")
    assert (first.status_code, again.status_code) == (202, 202)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.get_json()["id"] == first.get_json()["id"]
    other_body = submit(client, "https://media.example/other", key="a")
    assert other_body.status_code == 422
    assert other_body.get_json()["code"] == "idempotency_mismatch"
    assert submit(client, key="b").get_json()["id"] != first.get_json()["id"]
    assert count(engine) == 2


def test_the_key_of_a_deleted_job_is_free_again(client: FlaskClient) -> None:
    first = submit(client, key="a").get_json()
    client.delete(first["links"]["self"])
    again = submit(client, key="a")
    assert again.status_code == 202
    assert again.get_json()["id"] != first["id"]


@pytest.mark.parametrize("key", [None, "the-same"])
def test_a_race_of_equal_requests_makes_one_job(engine: sa.Engine, key: str | None) -> None:
    order = Order(Request(url=LINK), None, idempotency_key=key)
    start = threading.Barrier(6)

    def one(_: int) -> Accepted:
        start.wait(60)
        while True:
            try:
                with write(engine) as connection:
                    return place(connection, order, now=time.time(), retention=60)
            except LostRaceError:
                continue

    with ThreadPoolExecutor(6) as pool:
        placed = list(pool.map(one, range(6)))
    assert len({p.job.id for p in placed}) == 1
    assert sum(p.message is not None for p in placed) == 1
    assert count(engine) == 1


def test_keys_of_two_submitters_never_meet(engine: sa.Engine) -> None:
    mine = Order(Request(url=LINK), "A" * 26, idempotency_key="x")
    with write(engine) as connection:
        first = place(connection, replace(mine, idempotency_key=None), now=1.0, retention=60)
        other = replace(mine, api_key_id="B" * 26, idempotency_key=None)
        second = place(connection, other, now=1.0, retention=60)
    assert first.job.id != second.job.id


def test_submitting_works_while_redis_is_away(
    make_app: MakeApp, own_redis: RedisServer, engine: sa.Engine
) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    own_redis.pause()
    made: list[str] = []

    def to_submit() -> float:
        begun = time.monotonic()
        frozen = submit(client, f"https://media.example/frozen/{len(made)}")
        took = time.monotonic() - begun
        assert frozen.status_code == 202
        made.append(frozen.get_json()["links"]["self"])
        return took

    def to_look() -> float:
        begun = time.monotonic()
        # Its place in the queue can't be had now.
        assert client.get(made[0]).status_code == 200
        return time.monotonic() - begun

    assert fastest(to_submit, below=2) < 2
    assert fastest(to_look, below=4) < 4
    own_redis.kill9()
    response = submit(client, "https://media.example/dead")
    assert response.status_code == 202
    with read(engine) as connection:
        assert len(outbox.of_job(connection, response.get_json()["id"])) == 1
    assert client.get(response.get_json()["links"]["self"]).status_code == 200


def test_a_database_that_is_away_is_told(make_app: MakeApp, tmp_path: Path) -> None:
    # A folder where the file should be: SQLite can't open it.
    (tmp_path / "folder.db").mkdir()
    client = make_app(SLUICE_DATABASE_URL=f"sqlite:///{tmp_path / 'folder.db'}").test_client()
    response = submit(client)
    assert response.status_code == 503
    assert response.get_json()["code"] == "unavailable"
    assert int(response.headers["Retry-After"]) > 0
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200


def test_a_locked_database_does_not_stop_the_others(
    make_app: MakeApp, tmp_path: Path, sqlite_template: Path
) -> None:
    path = tmp_path / "locked.db"
    path.write_bytes(sqlite_template.read_bytes())
    client = make_app(SLUICE_DATABASE_URL=f"sqlite:///{path}").test_client()
    locker = open_engine(f"sqlite:///{path}")
    with write(locker):
        # Reading needs no write lock.
        assert client.get("/v1/jobs").status_code == 200
    locker.dispose()


def test_jobs_of_the_store_are_whole(engine: sa.Engine, client: FlaskClient) -> None:
    job = submit(client, items="1-3,7", playlist="all", subtitles=["en", "de"]).get_json()
    with read(engine) as connection:
        stored = job_store.get(connection, job["id"])
    assert stored is not None
    assert stored.status is Status.PENDING
    assert (stored.request.items, stored.request.subtitles) == ("1-3,7", ("en", "de"))


def test_gaps_are_allowed_where_that_is_asked_for(engine: sa.Engine, client: FlaskClient) -> None:
    strict = submit(client).get_json()
    lenient = submit(client, allow_gaps=True).get_json()
    # Another request: what one accepts the other refuses.
    assert strict["id"] != lenient["id"]
    assert submit(client, allow_gaps=True).get_json()["id"] == lenient["id"]
    lines = [{"url": f"{LINK}2", "allow_gaps": True}, {"url": f"{LINK}3"}]
    batch = client.post("/v1/jobs:batch", json={"jobs": lines}).get_json()["results"]
    ids = [strict["id"], lenient["id"], *(line["id"] for line in batch)]
    with read(engine) as connection:
        stored = job_store.get_many(connection, ids)
    assert [stored[job_id].request.allow_gaps for job_id in ids] == [False, True, True, False]
    assert submit(client, allow_gaps="yes").status_code == 422
    schema = client.get("/openapi.json").get_json()["components"]["schemas"]
    assert schema["JobRequest"]["properties"]["allow_gaps"]["default"] is False
    assert "gaps" in schema["JobModel"]["required"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_full_disk_is_told_as_such(make_app: MakeApp) -> None:
    def fill(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count=1")

    sa.event.listen(sa.Engine, "connect", fill)
    try:
        # More than a free page holds.
        response = submit(make_app().test_client(), metadata={"k": "x" * 16_000})
    finally:
        sa.event.remove(sa.Engine, "connect", fill)
    assert (response.status_code, response.get_json()["code"]) == (503, "unavailable")
    assert "disk is full" in response.get_json()["detail"]
