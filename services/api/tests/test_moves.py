from __future__ import annotations

import time

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from sluice_api.deps import Deps
from sluice_core.adapters.db import runs, segments
from sluice_core.adapters.db.engine import write
from sluice_core.domain.gaps import Gap, Span
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import ACTIVE, RETRYABLE, Status
from sluice_core.runtime.publisher import publish_now
from sluice_testing import factories


def make(engine: sa.Engine, status: Status) -> str:
    with write(engine) as connection:
        return factories.make_job_in(connection, status, now=time.time()).id


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("status", list(Status))
def test_the_table_of_moves_holds(client: FlaskClient, engine: sa.Engine, status: Status) -> None:
    for move, allowed in (("cancel", ACTIVE), ("retry", RETRYABLE)):
        job_id = make(engine, status)
        response = client.post(f"/v1/jobs/{job_id}/{move}")
        now = client.get(f"/v1/jobs/{job_id}").get_json()["status"]
        if status in allowed:
            assert response.status_code == 202
            assert now == response.get_json()["status"] != status.value
        else:
            assert response.status_code == 409
            assert response.get_json()["code"] == "conflict"
            assert response.get_json()["job_status"] == status.value == now


def test_a_retry_is_published(client: FlaskClient, deps: Deps, engine: sa.Engine) -> None:
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.DOWNLOAD, now=time.time())
        factories.fail(connection, run, now=time.time())
    assert client.post(f"/v1/jobs/{run.job.id}/retry").get_json()["waiting_for"] == "worker"
    assert deps.publisher.flush(60)
    assert deps.broker.waiting(["download.default"]) == {"download.default": 1}


def test_files_with_gaps_are_shown_until_a_retry_has_others(
    client: FlaskClient, engine: sa.Engine
) -> None:
    gap = Gap("muxed", "22", "incomplete", "bytes", spans=(Span(first=9),))
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.TRANSCODE, now=time.time())
        files, ends = [factories.artifact(run)], time.time() + 60
        runs.succeed(
            connection, run, files=files, fields={}, gaps=[gap], expires_at=ends, now=time.time()
        )
    had = client.get(f"/v1/jobs/{run.job.id}").get_json()
    assert (had["status"], len(had["files"]), len(had["gaps"])) == ("PARTIAL", 1, 1)
    again = client.post(f"/v1/jobs/{run.job.id}/retry").get_json()
    with write(engine) as connection:
        factories.fail(connection, factories.start_run(connection, run.job.id), now=time.time())
    failed = client.get(f"/v1/jobs/{run.job.id}").get_json()
    assert (again["status"], failed["status"]) == ("DOWNLOADING", "FAILED")
    for shown in (again, failed):
        assert (shown["files"], shown["gaps"]) == (had["files"], had["gaps"])


def test_the_place_of_a_job_is_not_that_of_its_helpers(
    client: FlaskClient, deps: Deps, engine: sa.Engine
) -> None:
    now = time.time()
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.TRANSCODE, now=now)
        missing = dict.fromkeys(range(6), 100)
        asked = segments.offer(
            connection, run, fingerprint="f", missing=missing, helpers=2, now=now
        )
        job, order = runs.hand_back(connection, run, now=now)
        # By one who gives way meanwhile.
        asked.append(segments.ask(connection, job, now=now))
    publish_now(deps.broker, [*asked, order], now=now)
    shown = client.get(f"/v1/jobs/{job.id}").get_json()
    assert (shown["waiting_for"], shown["queue_position"]) == ("worker", 1)


def test_a_collection_is_canceled_with_its_children(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as connection:
        parent, children = factories.make_collection(connection, 3, now=time.time())
    assert client.post(f"/v1/jobs/{parent.id}/cancel").status_code == 202
    shown = client.get(f"/v1/jobs/{parent.id}").get_json()
    assert shown["children"] == {
        "total": 3, "success": 0, "partial": 0, "failed": 0, "canceled": 3, "active": 0,
    }  # fmt: skip
    listed = client.get(f"/v1/jobs?parent={parent.id}").get_json()["jobs"]
    assert {j["id"] for j in listed} == {c.id for c in children}
    assert {j["status"] for j in listed} == {"CANCELED"}


def test_a_deleted_job_is_gone_at_once(client: FlaskClient, engine: sa.Engine) -> None:
    job_id = make(engine, Status.DOWNLOADING)
    assert client.delete(f"/v1/jobs/{job_id}").status_code == 202
    assert client.get(f"/v1/jobs/{job_id}").status_code == 404
    assert client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert client.get("/v1/jobs").get_json()["jobs"] == []


def test_pages_show_each_job_once_and_newest_first(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as connection:
        made = [factories.make_job(connection).id for _ in range(7)]
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = client.get(f"/v1/jobs?limit=3{cursor and '&cursor=' + cursor}").get_json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert seen == sorted(made, reverse=True)


def test_filters(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as connection:
        parent, _ = factories.make_collection(connection, 2)
        failed = factories.make_job_in(connection, Status.FAILED)
        other = factories.make_job(connection, url="https://rare.example/%41", preset="720p")

    def ids(query: str) -> set[str]:
        return {job["id"] for job in client.get(f"/v1/jobs?{query}").get_json()["jobs"]}

    assert ids("parent=none") == {parent.id, failed.id, other.id}
    assert ids("status=FAILED&status=CANCELED") == {failed.id}
    assert ids("preset=720p") == {other.id}
    assert ids("q=https://rare") == {other.id}
    assert ids("q=%25") == set()
    assert ids(f"q={other.id[:26].lower()}") == {other.id}
    assert ids("since=2099-01-01T00:00:00Z") == set()


def test_attempts_tell_each_run(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.DOWNLOAD)
        factories.fail(connection, run)
    parse, download = client.get(f"/v1/jobs/{run.job.id}/attempts").get_json()["attempts"]
    assert (parse["stage"], parse["outcome"], parse["error"]) == ("parse", "ok", None)
    assert (download["stage"], download["outcome"]) == ("download", "failed")
    assert download["error"]["code"] == "network"
    assert download["queue"] == "download.default"
    assert download["message_id"] != parse["message_id"]
    assert download["claimed_at"].endswith("Z")
