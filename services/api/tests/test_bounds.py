"""What clients can fill: jobs under way, and each request by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api import publisher
from sluice_api.backlog import AMPLE, FRESH, Backlog, Quota
from sluice_api.deps import Deps
from sluice_api.events import start
from sluice_api.events.memory import Memory
from sluice_api.events.messages import Watch
from sluice_api.routes import events
from sluice_api.submit import Accepted
from sluice_core.adapters.db import outbox
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import jobs
from sluice_core.runtime.failpoints import Failpoints
from sluice_testing import factories

LINK = "https://media.example/film"


def count(engine: sa.Engine) -> int:
    with read(engine) as connection:
        found: int = connection.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one()
    return found


def test_jobs_under_way_are_refused_beyond_the_cap(
    make_app: Callable[..., Flask], engine: sa.Engine
) -> None:
    client = make_app(SLUICE_MAX_ACTIVE_JOBS="3").test_client()
    ids = [client.post("/v1/jobs", json={"url": f"{LINK}/{n}"}).get_json()["id"] for n in range(3)]
    refused = client.post("/v1/jobs", json={"url": f"{LINK}/4"})
    assert (refused.status_code, refused.get_json()["code"]) == (429, "too_many_jobs")
    assert int(refused.headers["Retry-After"]) > 0
    assert count(engine) == 3
    # What asks for no new job is answered as ever.
    known = client.post("/v1/jobs", json={"url": f"{LINK}/0"})
    assert known.status_code < 300
    assert known.get_json()["id"] == ids[0]
    assert client.post(f"/v1/jobs/{ids[0]}/cancel").status_code == 202
    assert client.post("/v1/jobs", json={"url": f"{LINK}/4"}).status_code == 202


def test_nobody_counts_again_while_there_was_ample_room_a_moment_ago(
    engine: sa.Engine,
) -> None:
    asked: list[str] = []
    sa.event.listen(engine, "after_cursor_execute", lambda _c, _u, text, *_: asked.append(text))
    now = [100.0]
    quota = Quota("key", most=AMPLE + 1)

    def counts(backlog: Backlog) -> int:
        with write(engine) as connection:
            job = factories.make_job(connection, api_key_id="key")
            (order,) = outbox.of_job(connection, job.id)
            asked.clear()
            backlog.check_room(connection, [Accepted(job, message=None)], quota)
            assert not asked
            backlog.check_room(connection, [Accepted(job, message=order)], quota)
        return len(asked)

    wide, near = (Backlog(cap, clock=lambda: now[0]) for cap in (AMPLE + 10, AMPLE))
    assert [counts(wide), counts(wide)] == [2, 0]
    now[0] += FRESH
    # The second job of the key: its room is ample no more.
    assert [counts(wide), counts(wide), counts(near), counts(near)] == [2, 1, 2, 2]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_keys_with_ample_room_are_remembered_up_to_a_cap(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice_api.backlog.MAX_KEYS", 3)
    backlog = Backlog(AMPLE + 10)
    with write(engine) as connection:
        for n in range(20):
            backlog.check_active(connection, Quota(f"key-{n}", most=AMPLE + 10))
            assert len(backlog._ample_at) <= 3  # noqa: SLF001  # nothing else shows it


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_batch_that_is_too_much_is_refused_line_by_line(
    make_app: Callable[..., Flask], engine: sa.Engine
) -> None:
    client = make_app(SLUICE_MAX_ACTIVE_JOBS="3").test_client()
    links = [f"{LINK}/{n}" for n in range(4)]
    response = client.post("/v1/jobs:batch", json=links)
    assert response.status_code == 422
    results = response.get_json()["results"]
    assert [line["error"]["code"] for line in results] == ["too_many_jobs"] * 4
    assert count(engine) == 0
    assert client.post("/v1/jobs:batch", json=links[:3]).get_json()["accepted"] == 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"url": LINK, "metadata": {"k": "x" * 16_380}}, 422),
        ({"url": LINK, "metadata": {"k": "x" * 16_000}}, 202),
        ({"url": LINK + "/" + "x" * 5_000}, 422),
        ({"url": LINK, "subtitles": ["en"] * 33}, 422),
        ({"url": LINK, "items": "1," * 251}, 422),
    ],
)
def test_each_part_of_a_request_has_a_size(
    make_app: Callable[..., Flask], body: dict[str, object], status: int
) -> None:
    assert make_app().test_client().post("/v1/jobs", json=body).status_code == status


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_streams_are_refused_beyond_their_places(
    client: FlaskClient, deps: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_CLIENTS", 2)
    everything = Watch(None, None, ends=False)
    for _ in range(2):
        deps.hub.join(everything, lambda: True)
    response = client.get("/v1/events")
    assert (response.status_code, response.get_json()["code"]) == (503, "unavailable")
    assert int(response.headers["Retry-After"]) > 0


def test_who_missed_too_much_is_sent_a_snapshot(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "MAX_MISSED", 3)
    everything = Watch(None, None, ends=False)

    def begin() -> tuple[int, bool]:
        with write(engine) as connection:
            factories.make_job(connection)
            found = start.read_start(connection, everything, start.Known(factories.NOW))
        return len(found.shown), found.is_snapshot

    assert [begin() for _ in range(4)] == [(1, False), (2, False), (3, False), (4, True)]


def test_what_streams_remember_is_bounded(engine: sa.Engine) -> None:
    memory = Memory(max_versions=5, max_jobs=2)
    with write(engine) as connection:
        made = [factories.make_job(connection) for _ in range(9)]
    for job in made:
        memory.keep(job, None)
    assert memory.active() == [job.id for job in made[-2:]]
    told = [job.id for job in made if memory.version(job.id) >= 0]
    assert told == [job.id for job in made[-5:]]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_waits_to_be_published_is_bounded(
    deps: Deps, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greenlet that sends does not get its turn here, so that all waits."""
    monkeypatch.setattr(publisher, "MAX_WAITING", 5)
    waiting = publisher.Publisher(
        deps.broker, deps.signals, failpoints=Failpoints("", None), clock=deps.clock
    )
    with write(engine) as connection:
        job = factories.make_job(connection)
    for _ in range(50):
        waiting.send([], [job])
    assert len(waiting._waiting) == 5  # noqa: SLF001  # nothing else shows it
    waiting.close()
