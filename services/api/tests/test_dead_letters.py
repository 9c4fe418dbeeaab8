"""Dead letters over HTTP: for operators, paged, sent back once, dropped once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_core.adapters.db import dead_letters, runs
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import write
from sluice_core.domain.lanes import Actor
from sluice_testing import factories

LIST = "/v1/dead-letters"


def add(engine: sa.Engine, **fields: str | None) -> str:
    told = {"queue": "parse", "job_id": None, "reason": "unreadable message", "payload": "\0{"}
    with write(engine) as connection:
        return dead_letters.add(connection, now=time.time(), **{**told, **fields})  # type: ignore[arg-type]  # of the dict


def exhaust(engine: sa.Engine) -> tuple[str, str]:
    now = time.time()
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.DOWNLOAD, now=now)
        runs.fail(connection, run, factories.ERROR, dead=True, sweep_at=now + 60, now=now)
        (letter,) = dead_letters.list_page(
            connection, dead_letters.Filter(job_id=run.job.id), before_id=None, limit=9
        )
    return run.job.id, letter.id


def test_requeue_retries_the_job_and_publishes(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    job_id, letter_id = exhaust(engine)
    (shown,) = client.get(LIST).get_json()["dead_letters"]
    assert (shown["id"], shown["job_id"], shown["queue"]) == (letter_id, job_id, "download.default")
    assert shown["reason"] == "network: the connection failed"
    response = client.post(f"{LIST}/{letter_id}/requeue")
    assert (response.status_code, response.get_json()["job_id"]) == (202, job_id)
    assert deps.publisher.flush(60)
    assert deps.broker.waiting(["download.default"]) == {"download.default": 1}
    assert client.get(f"/v1/jobs/{job_id}").get_json()["waiting_for"] == "worker"
    assert client.get(LIST).get_json()["dead_letters"] == []
    assert client.post(f"{LIST}/{letter_id}/requeue").status_code == 404


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestOnOneDatabase:
    def test_an_unreadable_one_stays(self, client: FlaskClient, engine: sa.Engine) -> None:
        letter_id = add(engine)
        response = client.post(f"{LIST}/{letter_id}/requeue")
        assert response.status_code == 409
        assert response.get_json()["code"] == "conflict"
        assert "could not be read" in response.get_json()["detail"]
        assert len(client.get(LIST).get_json()["dead_letters"]) == 1

    def test_drop(self, client: FlaskClient, engine: sa.Engine) -> None:
        job_id, letter_id = exhaust(engine)
        assert client.delete(f"{LIST}/{letter_id}").get_json()["dropped"] is True
        assert client.delete(f"{LIST}/{letter_id}").status_code == 404
        assert client.get(f"/v1/jobs/{job_id}").get_json()["status"] == "FAILED"

    def test_pages_and_filters(self, client: FlaskClient, engine: sa.Engine) -> None:
        ids = [add(engine, queue=queue) for queue in ("parse.low", "download", "parse.high")]
        page = client.get(f"{LIST}?queue=parse&limit=1").get_json()
        assert [x["id"] for x in page["dead_letters"]] == [ids[2]]
        rest = client.get(f"{LIST}?queue=parse&cursor={page['next_cursor']}").get_json()
        assert [x["id"] for x in rest["dead_letters"]] == [ids[0]]
        assert rest["next_cursor"] is None
        assert client.get(f"{LIST}?job={'0' * 26}").get_json()["dead_letters"] == []

    @pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=x", "job=x", "colour=red"])
    def test_bad_queries(self, client: FlaskClient, query: str) -> None:
        response = client.get(f"{LIST}?{query}")
        assert (response.status_code, response.get_json()["code"]) == (422, "invalid_request")

    def test_bad_ids(self, client: FlaskClient) -> None:
        assert client.post(f"{LIST}/x/requeue").status_code == 422
        assert client.post(f"{LIST}/{'0' * 26}/requeue").status_code == 404

    def test_operators_only(
        self, app: Flask, engine: sa.Engine, make_key: Callable[..., dict[str, str]]
    ) -> None:
        letter_id = add(engine)
        client = app.test_client()
        headers = make_key(Scope.READ, Scope.SUBMIT)
        for method, path in (
            ("GET", LIST),
            ("POST", f"{LIST}/{letter_id}/requeue"),
            ("DELETE", f"{LIST}/{letter_id}"),
        ):
            response = client.open(path, method=method, headers=headers)
            assert (response.status_code, response.get_json()["code"]) == (403, "forbidden")
        assert client.get(LIST, headers=make_key(Scope.OPERATE)).status_code == 200

    def test_the_stats_count_what_fell_out(self, client: FlaskClient, engine: sa.Engine) -> None:
        add(engine)
        add(engine)
        with write(engine) as connection:
            assert dead_letters.trim(connection, cap=1) == 1
        stats = client.get("/v1/stats").get_json()
        assert (stats["dead_letters"], stats["dead_letters_dropped"]) == (1, 1)
