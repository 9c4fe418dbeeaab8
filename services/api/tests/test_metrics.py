"""`/metrics` of a real API process: right in form, true in what it says, silent on what is away."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from sluice_api import installation
from sluice_api.deps import Deps
from sluice_core.adapters.db import dead_letters, runs, tallies
from sluice_core.adapters.db.engine import write
from sluice_core.domain.lanes import Actor
from sluice_core.domain.metrics import METRICS, Source
from sluice_testing.factories import ERROR, NOW, fail, make_job, run_at, start_run
from sluice_testing.process import free_port
from sluice_testing.prometheus import complaints
from sluice_testing.redis import RedisServer
from sluice_testing.waiting import fastest

Page = dict[tuple[str, ...], float]


def parse(text: str) -> Page:
    """(name, label values in order of their names) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "FRESH", 0.0)


def page(client: FlaskClient) -> Page:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return parse(answer.text)


def fold(engine: sa.Engine) -> None:
    with write(engine) as c:
        tallies.fold(c)


def test_promtool_finds_nothing_to_say(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as c:
        run_at(c, Actor.TRANSCODE)
    fold(engine)
    client.get("/v1/presets")
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert complaints(answer.text) == ""


def test_prometheus_asks_for_another_form_which_has_one_end(client: FlaskClient) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.count("# EOF") == 1
    assert answer.text.endswith("# EOF\n")
    assert {family.name for family in openmetrics(answer.text)} > {"sluice_up", "sluice_jobs"}


def test_queues_by_state(client: FlaskClient, deps: Deps, engine: sa.Engine) -> None:
    now = time.time()
    with write(engine) as c:
        make_job(c, now=now, not_before=now + 3600)
        make_job(c, now=now - 60)
        run = run_at(c, Actor.DOWNLOAD, now=now)
        dead_letters.add(c, queue="parse.low", job_id=None, reason="?", payload="", now=now)
    deps.broker.publish("01", "parse", "parse.high", {"job": "x", "epoch": 0})
    found = page(client)
    states = {
        ("parse.default", "delayed"): 1,
        ("parse.default", "due"): 1,
        ("parse.low", "dead"): 1,
        ("parse.high", "waiting"): 1,
    }
    for (queue, state), count in states.items():
        assert found["sluice_queue_messages", queue, state] == count
    assert sum(v for k, v in found.items() if k[0] == "sluice_queue_messages") == len(states)
    assert found["sluice_queue_oldest_age_seconds", "parse.default"] == pytest.approx(60, abs=30)
    assert found["sluice_stage_in_progress", "download"] == 1
    assert found["sluice_stage_in_progress", "parse"] == 0
    assert found["sluice_jobs_active", "PENDING"] == 2
    assert found["sluice_outbox_pending",] == 1
    assert found["sluice_jobs_stuck",] == 0
    with write(engine) as c:
        c.execute(sa.text("UPDATE jobs SET updated_at = updated_at - 3600"))
    assert run.job.id
    assert page(client)["sluice_jobs_stuck",] == 1


def test_an_emptied_redis_hides_no_work(
    client: FlaskClient, deps: Deps, engine: sa.Engine, redis_server: RedisServer
) -> None:
    now = time.time()
    with write(engine) as c:
        job = make_job(c, now=now - 60)
        c.execute(sa.text("UPDATE outbox SET published_at = :at"), {"at": now - 50})
        row = c.execute(sa.text("SELECT id FROM outbox")).scalar_one()
    deps.broker.publish(row, "parse", "parse.default", {"job": job.id, "epoch": 0})
    before = page(client)
    assert before["sluice_queue_messages", "parse.default", "waiting"] == 1
    assert before["sluice_queue_messages", "parse.default", "due"] == 0
    redis_server.flush()
    after = page(client)
    assert after["sluice_queue_messages", "parse.default", "waiting"] == 0
    assert after["sluice_queue_messages", "parse.default", "due"] == 1
    assert after["sluice_queue_oldest_age_seconds", "parse.default"] > 50


def test_a_retry_counts_once_and_counters_outlive_the_process(
    make_app: Callable[..., Flask], engine: sa.Engine
) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.retry_later(c, run, ERROR, due_at=NOW, now=NOW)
        fail(c, start_run(c, run.job.id), now=NOW + 100)
    fold(engine)
    pages = [page(make_app().test_client()) for _ in range(2)]
    for found in pages:
        assert found["sluice_stage_retries_total", "network", "download"] == 1
        assert found["sluice_stage_failures_total", "transient", "network", "download"] == 2
        assert found["sluice_jobs_total", "best", "FAILED"] == 1
        assert found["sluice_job_duration_seconds_sum", "best"] == 100
        assert found["sluice_job_duration_seconds_bucket", "60.0", "best"] == 0
        assert found["sluice_job_duration_seconds_bucket", "120.0", "best"] == 1
        assert found["sluice_job_duration_seconds_bucket", "+Inf", "best"] == 1
        assert found["sluice_job_duration_seconds_count", "best"] == 1


def test_requests_by_route_never_by_address(client: FlaskClient) -> None:
    client.get("/v1/jobs/01JZZZZZZZZZZZZZZZZZZZZZZZ")
    client.get("/v1/jobs/01JYYYYYYYYYYYYYYYYYYYYYYY")
    client.get("/nothing/of/the/kind")
    client.open("/v1/jobs", method="BREW")
    found = page(client)
    counted = {k: v for k, v in found.items() if k[0].endswith("request_duration_seconds_count")}
    name = "sluice_http_request_duration_seconds_count"
    assert counted[name, "GET", "/v1/jobs/<string:id>", "404"] == 2
    assert counted[name, "GET", "unmatched", "404"] == 1
    assert counted[name, "other", "unmatched", "405"] == 1
    assert not any("01J" in part for key in found for part in key)


def test_redis_away_leaves_out_what_it_would_tell(
    make_app: Callable[..., Flask], own_redis: RedisServer
) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    assert page(client)["sluice_up", "redis"] == 1
    own_redis.kill9()
    found = page(client)
    assert found["sluice_up", "redis"] == 0
    assert found["sluice_up", "database"] == 1
    names = {key[0] for key in found}
    assert not names & {
        "sluice_queue_messages", "sluice_queue_oldest_age_seconds", "sluice_workers",
        "sluice_redis_memory_bytes", "sluice_redis_noeviction", "sluice_queue_paused",
    }  # fmt: skip
    assert {"sluice_jobs_active", "sluice_outbox_pending", "sluice_reconciled_total"} <= names


def test_a_silent_redis_does_not_hold_the_page_up(
    make_app: Callable[..., Flask], own_redis: RedisServer
) -> None:
    client = make_app(SLUICE_REDIS_URL=own_redis.url).test_client()
    assert page(client)["sluice_up", "redis"] == 1
    own_redis.pause()

    def seconds() -> float:
        began = time.monotonic()
        assert page(client)["sluice_up", "redis"] == 0
        return time.monotonic() - began

    try:
        # Prometheus gives a page ten seconds.
        assert fastest(seconds, below=9, tries=4) < 9
    finally:
        own_redis.cont()


def test_a_database_without_tables_is_not_up(make_app: Callable[..., Flask], tmp_path) -> None:
    app = make_app(SLUICE_DATABASE_URL=f"sqlite:///{tmp_path / 'empty.db'}")
    found = page(app.test_client())
    assert found["sluice_up", "database"] == 0
    assert found["sluice_up", "redis"] == 1
    assert not {k[0] for k in found} & {"sluice_jobs_total", "sluice_jobs_active"}


def test_only_what_the_catalogue_has(client: FlaskClient, engine: sa.Engine) -> None:
    with write(engine) as c:
        run_at(c, Actor.TRANSCODE)
    fold(engine)
    sources = (Source.INSTALLATION, Source.API)
    known = {m.full_name for m in METRICS.values() if m.source in sources}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        name = family.name + ("_total" if family.type == "counter" else "")
        if name.startswith("process_"):
            continue
        assert name in known
        metric = METRICS[name.removeprefix("sluice_")]
        assert family.documentation.replace("\\\\", "\\") == metric.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
            for label, values in metric.labels.items():
                assert isinstance(values, str) or sample.labels[label] in values


class TestOwnPort:
    def test_it_has_the_page_and_the_other_has_not(self, serve: Callable[..., object]) -> None:
        port = free_port()
        served = serve(SLUICE_METRICS_PORT=str(port))
        own = f"http://127.0.0.1:{port}"
        assert "sluice_up" in httpx.get(f"{own}/metrics", timeout=60).text
        assert httpx.get(f"{own}/livez", timeout=60).status_code == 200
        assert httpx.get(f"{own}/readyz", timeout=60).status_code == 200
        for path in ("/", "/v1/jobs", "/openapi.json"):
            assert httpx.get(f"{own}{path}", timeout=60).status_code == 404
        with served.client() as client:
            assert client.get("/metrics").status_code == 404
            assert client.get("/v1/jobs").status_code == 200

    def test_a_port_that_is_taken_is_told_in_a_sentence(self, serve, redis_server) -> None:
        with pytest.raises(Exception, match="SLUICE_METRICS_PORT"):
            serve(SLUICE_METRICS_PORT=str(redis_server.port))
