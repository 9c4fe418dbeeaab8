from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_api.models import MAX_BATCH
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.schema import jobs


def link(n: int) -> str:
    return f"https://media.example/{n}"


def send(client: FlaskClient, body: Any, **headers: str) -> Any:
    return client.post("/v1/jobs:batch", json=body, headers=headers)


def count(engine: sa.Engine) -> int:
    with read(engine) as connection:
        found: int = connection.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one()
    return found


def test_each_line_stands_by_itself(client: FlaskClient, deps: Deps, engine: sa.Engine) -> None:
    lines = [link(1), {"url": link(2), "preset": "720p"}, "file:///x", {"url": 7}, link(1), None]
    response = send(client, {"jobs": lines})
    assert response.status_code == 202
    answer = response.get_json()
    assert (answer["accepted"], answer["refused"]) == (3, 3)
    results = answer["results"]
    assert [r["line"] for r in results] == [1, 2, 3, 4, 5, 6]
    codes = [r.get("error", {}).get("code") for r in results]
    assert codes == [None, None, "unsupported_url", "invalid_request", None, "invalid_request"]
    assert results[4]["id"] == results[0]["id"]
    assert [r.get("existing") for r in results] == [False, False, None, None, True, None]
    assert count(engine) == 2
    assert deps.publisher.flush(60)
    assert deps.broker.waiting(["parse.default"]) == {"parse.default": 2}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_lines_of_json_and_plain_links(client: FlaskClient) -> None:
    body = "\n".join([link(1), "", json.dumps({"url": link(2)}), json.dumps(link(3)), "{oops"])
    response = client.post("/v1/jobs:batch", data=body, content_type="application/x-ndjson")
    results = response.get_json()["results"]
    assert [(r["line"], "id" in r) for r in results] == [
        (1, True),
        (3, True),
        (4, True),
        (5, False),
    ]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_thousands_in_one_request(client: FlaskClient, engine: sa.Engine) -> None:
    answer = send(client, {"jobs": [link(n) for n in range(1_200)]}).get_json()
    assert answer["accepted"] == count(engine) == 1_200


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "body",
    [{"jobs": []}, {"jobs": "x"}, {}, 7, {"links": [link(1)]}, [None], [link(1)] * (MAX_BATCH + 1)],
    ids=range(7),
)
def test_bad_batches_leave_nothing(client: FlaskClient, engine: sa.Engine, body: Any) -> None:
    response = send(client, body)
    assert response.status_code == 422
    assert response.content_type == "application/problem+json"
    assert count(engine) == 0


def test_a_repeated_batch_makes_nothing_new(client: FlaskClient, engine: sa.Engine) -> None:
    lines = [{"url": link(n), "force": True} for n in range(3)]
    key = {"Idempotency-Key": "batch"}
    first = send(client, lines, **key).get_json()
    again = send(client, lines, **key).get_json()
    assert [r["id"] for r in first["results"]] == [r["id"] for r in again["results"]]
    assert count(engine) == 3
    other = send(client, [link(9), *lines[1:]], **key).get_json()
    assert other["results"][0]["error"]["code"] == "idempotency_mismatch"
    assert other["accepted"] == 2
