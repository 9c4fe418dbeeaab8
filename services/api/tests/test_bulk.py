"""Many at once: what fits, whose it is, and no longer than a request may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api import bulk
from sluice_api.deps import Deps
from sluice_core.adapters.db import dead_letters, job_counts, runs
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_testing import factories
from sluice_testing.waiting import fastest

MakeKey = Callable[..., dict[str, str]]
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def submit(client: FlaskClient, count: int, prefix: str = "a", **options: Any) -> list[str]:
    links = [{"url": f"https://{prefix}.example/{n}"} for n in range(count)]
    answer = client.post("/v1/jobs:batch", json={"jobs": links}, **options)
    return [line["id"] for line in answer.get_json()["results"]]


def states(client: FlaskClient, **options: Any) -> dict[str, int]:
    jobs = client.get("/v1/jobs?limit=200", **options).get_json()["jobs"]
    found = [job["status"] for job in jobs]
    return {status: found.count(status) for status in set(found)}


def test_cancel_then_retry_by_filter_over_several_pages(
    client: FlaskClient, deps: Deps, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    ids = submit(client, 8)
    submit(client, 2, "b")
    with write(engine) as connection:
        parent, children = factories.make_collection(connection, 2, now=time.time())
    answer = client.post("/v1/jobs:cancel", json={"filter": {"q": "https://a.example"}})
    assert answer.get_json() == {"done": 8, "refused": 0, "remaining": 0}
    assert states(client) == {"CANCELED": 8, "PENDING": 4, "DOWNLOADING": 1}
    again = client.post("/v1/jobs:cancel", json={"filter": {"q": "https://a.example"}})
    assert again.get_json() == {"done": 0, "refused": 0, "remaining": 0}
    # A parent takes its children along.
    answer = client.post("/v1/jobs:cancel", json={"filter": {"ids": [parent.id]}})
    assert answer.get_json()["done"] == 1
    shown = client.get(f"/v1/jobs/{children[0].id}").get_json()
    assert shown["status"] == "CANCELED"
    asked = {"filter": {"status": ["CANCELED"], "ids": ids}, "limit": 5}
    assert client.post("/v1/jobs:retry", json=asked).get_json() == {
        "done": 5,
        "refused": 0,
        "remaining": 3,
    }
    assert deps.publisher.flush(60)
    # The epoch of a canceled job went up with each move; its message waits once.
    assert deps.broker.waiting(["parse.default"])["parse.default"] >= 5
    entries = client.get("/v1/audit").get_json()["entries"]
    assert [e["action"] for e in entries] == ["jobs.retry", "jobs.cancel", "jobs.cancel"]
    assert entries[0]["detail"] == {"filter": asked["filter"], "done": 5, "refused": 0}
    with read(engine) as connection:
        counts = job_counts.read(connection)
        sums = dict.fromkeys(Status, 0)
        rows = connection.execute(sa.text("SELECT status, count(*) FROM jobs GROUP BY status"))
        sums |= {Status(status): count for status, count in rows}
    assert counts == sums


@on_sqlite
def test_states_from_which_no_move_leads_fit_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with write(engine) as connection:
        factories.make_job_in(connection, Status.SUCCESS)
        factories.make_job_in(connection, Status.FAILED)
    nothing = {"done": 0, "refused": 0, "remaining": 0}
    for what, status in [("retry", "SUCCESS"), ("cancel", "FAILED"), ("cancel", "SUCCESS")]:
        asked = {"filter": {"status": [status]}}
        assert client.post(f"/v1/jobs:{what}", json=asked).get_json() == nothing
    asked = {"filter": {"error_code": "network"}}
    assert client.post("/v1/jobs:retry", json=asked).get_json()["done"] == 1


@on_sqlite
def test_all_must_be_said_in_words(client: FlaskClient) -> None:
    submit(client, 1)
    bodies: list[dict[str, Any]] = [
        {}, {"filter": {}}, {"filter": {"all": False}}, {"filter": {"all": True, "ids": ["A"]}},
        {"filter": {"ids": []}}, {"filter": {"ids": "A"}}, {"filter": {"unknown": 1}},
        {"filter": {"all": True}, "more": 1},
    ]  # fmt: skip
    for what in ("jobs:cancel", "jobs:retry", "dead-letters:requeue", "dead-letters:drop"):
        for body in bodies:
            answer = client.post(f"/v1/{what}", json=body)
            assert answer.status_code == 422, (what, body)
            assert answer.get_json()["code"] == "invalid_request"
    assert states(client) == {"PENDING": 1}


@on_sqlite
def test_nobody_moves_the_jobs_of_another_key(
    make_app: Callable[..., Flask], make_key: MakeKey
) -> None:
    client = make_app(SLUICE_API_KEYS_REQUIRED="true").test_client()
    mine, other = make_key(Scope.SUBMIT, Scope.READ), make_key(Scope.SUBMIT, Scope.READ)
    boss = make_key(Scope.OPERATE)
    ids = submit(client, 3, headers=mine)
    for filter_ in ({"all": True}, {"ids": ids}):
        asked = {"filter": filter_}
        answer = client.post("/v1/jobs:cancel", json=asked, headers=other)
        assert answer.get_json() == {"done": 0, "refused": 0, "remaining": 0}
    asked = {"filter": {"all": True}}
    assert client.post("/v1/jobs:cancel", json=asked, headers=mine).get_json()["done"] == 3
    assert client.get("/v1/audit", headers=boss).get_json()["entries"] == []
    assert client.post("/v1/jobs:retry", json=asked, headers=boss).get_json()["done"] == 3
    assert len(client.get("/v1/audit", headers=boss).get_json()["entries"]) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_hundred_thousand_fit_and_the_answer_comes_in_time(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with write(engine) as connection:
        job = factories.make_job(connection, now=time.time())
        names = [c["name"] for c in sa.inspect(connection).get_columns("jobs")]
        copied = ", ".join(n for n in names if n not in ("id", "dedup_key"))
        connection.execute(
            sa.text(
                f"INSERT INTO jobs (id, {copied}) SELECT lpad(n::text, 26, '0'), {copied}"  # noqa: S608
                " FROM jobs, generate_series(1, 100000) n WHERE id = :id"
            ),
            {"id": job.id},
        )
    done = 0

    def seconds() -> float:
        nonlocal done
        begun = time.monotonic()
        answer = client.post("/v1/jobs:cancel", json={"filter": {"all": True}}).get_json()
        took = time.monotonic() - begun
        done += answer["done"]
        assert answer["done"] > 0
        assert answer["remaining"] == min(100_001 - done, bulk.MAX_COUNT)
        return took

    # Two seconds are promised; the last page and the count come on top.
    limit = bulk.DEADLINE + 3
    assert fastest(seconds, below=limit) < limit
    assert done < 100_001


class TestLetters:
    @pytest.fixture
    def letters(self, engine: sa.Engine) -> list[str]:
        """Two that can be done again, one that can't be read, one whose job is gone."""
        now = time.time()
        with write(engine) as connection:
            for _ in range(2):
                run = factories.run_at(connection, Actor.DOWNLOAD, now=now)
                runs.fail(connection, run, factories.ERROR, dead=True, sweep_at=now + 60, now=now)
            for job_id, reason in [(None, "unreadable message"), ("0" * 26, "unknown job")]:
                dead_letters.add(
                    connection, queue="parse", job_id=job_id, reason=reason, payload="{", now=now
                )
            return [
                x.id
                for x in dead_letters.list_page(
                    connection, dead_letters.Filter(), before_id=None, limit=9
                )
            ]

    @pytest.mark.usefixtures("letters")
    def test_requeued_by_filter(self, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bulk, "PAGE", 1)
        asked = {"filter": {"reason": "network"}}
        listed = client.get("/v1/dead-letters?reason=network").get_json()["dead_letters"]
        assert len(listed) == 2
        answer = client.post("/v1/dead-letters:requeue", json=asked)
        assert answer.get_json() == {"done": 2, "refused": 0, "remaining": 0}
        # Nothing can be done for the others, which stay.
        answer = client.post("/v1/dead-letters:requeue", json={"filter": {"all": True}})
        assert answer.get_json() == {"done": 0, "refused": 2, "remaining": 2}
        answer = client.post("/v1/dead-letters:drop", json={"filter": {"queue": "parse"}})
        assert answer.get_json() == {"done": 2, "refused": 0, "remaining": 0}
        actions = [e["action"] for e in client.get("/v1/audit").get_json()["entries"]]
        assert actions == ["letters.drop", "letters.requeue"]

    @on_sqlite
    def test_one_that_is_gone(self, client: FlaskClient, letters: list[str]) -> None:
        one = f"/v1/dead-letters/{letters[-1]}"
        assert client.delete(one).status_code == 200
        for gone in (client.delete(one), client.post(f"{one}/requeue")):
            assert gone.status_code == 404
            assert gone.get_json()["detail"] == "There is no such dead letter."
        [entry] = client.get("/v1/audit").get_json()["entries"]
        assert (entry["action"], entry["target"]) == ("letter.drop", letters[-1])
        assert entry["detail"]["reason"].startswith("network")
