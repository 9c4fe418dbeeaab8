"""What is counted of runs and jobs: once each, with the state, and never what was rolled back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import liveness, moves, runs, tallies
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import tally_events
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.metrics import METRICS, Kind
from sluice_core.domain.states import TERMINAL, Status
from sluice_core.domain.tallies import PROMISED_SECONDS, Tally, cells, of_run
from sluice_testing.factories import (
    ERROR,
    NOW,
    fail,
    finish,
    make_collection,
    make_job,
    make_job_in,
    run_at,
    settle,
    start_run,
)


def counted(engine: sa.Engine, metric: str) -> dict[tuple[str, ...], float]:
    """Label values of one series -> its value, all notes added up."""
    with write(engine) as connection:
        while tallies.fold(connection):
            pass
    with read(engine) as connection:
        return {
            tuple(value for _, value in sorted(json.loads(labels).items())): value
            for (series, labels), value in tallies.read(connection).items()
            if series == metric
        }


def runs_counted(engine: sa.Engine) -> dict[tuple[str, ...], float]:
    """(outcome, stage) -> runs, over all buckets."""
    found: dict[tuple[str, ...], float] = {}
    for (_le, outcome, stage), value in counted(engine, "stage_duration_seconds_bucket").items():
        found[outcome, stage] = found.get((outcome, stage), 0.0) + value
    return found


def test_a_job_and_each_of_its_runs_count_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        finish(c, run_at(c, Actor.TRANSCODE), now=NOW + 42)
    stages = {("ok", stage): 1.0 for stage in ("parse", "download", "transcode")}
    assert runs_counted(engine) == stages
    assert counted(engine, "jobs_total") == {("best", "SUCCESS"): 1.0}
    assert counted(engine, "job_duration_seconds_sum") == {("best",): 42.0}
    assert counted(engine, "job_duration_seconds_bucket") == {("60.0", "best"): 1.0}
    assert counted(engine, "slo_jobs_total") == {("kept",): 1.0}
    # Folding again adds nothing.
    assert runs_counted(engine) == stages


def test_a_retry_is_one_failure_and_one_retry_and_no_end(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.retry_later(c, run, ERROR, due_at=NOW, now=NOW)
        fail(c, start_run(c, run.job.id))
    assert counted(engine, "stage_retries_total") == {("network", "download"): 1.0}
    failures = {("transient", "network", "download"): 2.0}
    assert counted(engine, "stage_failures_total") == failures
    assert runs_counted(engine)["retry", "download"] == 1.0
    assert runs_counted(engine)["failed", "download"] == 1.0
    assert counted(engine, "jobs_total") == {("best", "FAILED"): 1.0}


def test_what_is_rolled_back_or_refused_is_not_counted(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        moves.cancel(c, run.job.id, now=NOW)
    before = counted(engine, "jobs_total")
    assert before == {("best", "CANCELED"): 1.0}
    with pytest.raises(StaleRunError), write(engine) as c:
        fail(c, run)
    assert counted(engine, "jobs_total") == before
    assert runs_counted(engine) == {("canceled", "parse"): 1.0}


def test_a_lost_run_is_a_failure_of_its_own(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        for max_losses in (9, 1):
            liveness.declare_lost(
                c, run.attempt_id, max_losses=max_losses, sweep_at=NOW, now=NOW + 20
            )
            if max_losses > 1:
                run = start_run(c, run.job.id)
    assert runs_counted(engine)["lost", "download"] == 2.0
    lost = {("manual", "worker_lost", "download"): 2.0}
    assert counted(engine, "stage_failures_total") == lost
    assert counted(engine, "jobs_total") == {("best", "FAILED"): 1.0}
    assert counted(engine, "slo_jobs_total") == {("broken",): 1.0}


@pytest.mark.parametrize(
    ("error", "after", "promise"),
    [
        (JobError("not_found", "permanent", "404"), 5.0, "kept"),
        (JobError("network", "transient", "gone"), 5.0, "kept"),
        (JobError("internal", "transient", "bug"), 5.0, "broken"),
        (JobError("disk_full", "transient", "full"), 5.0, "broken"),
        (JobError("not_found", "permanent", "404"), PROMISED_SECONDS + 1, "broken"),
    ],
)
def test_a_failure_keeps_the_promise_if_it_is_the_links_own_and_in_time(
    engine: sa.Engine, error: JobError, after: float, promise: str
) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        runs.fail(c, run, error, dead=False, sweep_at=NOW, now=NOW + after)
    assert counted(engine, "slo_jobs_total") == {(promise,): 1.0}


def test_time_counts_from_when_it_was_wanted(engine: sa.Engine) -> None:
    with write(engine) as c:
        later = make_job(c, not_before=NOW + 10_000)
        fail(c, start_run(c, later.id, now=NOW + 10_000), now=NOW + 10_003)
        moves.retry(c, later.id, now=NOW + 50_000)
        fail(c, start_run(c, later.id, now=NOW + 50_000), now=NOW + 50_004)
    assert counted(engine, "job_duration_seconds_sum") == {("best",): 7.0}
    assert counted(engine, "slo_jobs_total") == {("kept",): 2.0}
    assert counted(engine, "jobs_total") == {("best", "FAILED"): 2.0}


def test_a_collection_counts_and_each_child_is_promised(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, children = make_collection(c, 2)
        for child in children:
            fail(c, start_run(c, child.id))
        settle(c, parent.id, now=NOW + 9_999)
    assert counted(engine, "jobs_total") == {("best", "FAILED"): 3.0}
    assert counted(engine, "slo_jobs_total") == {("kept",): 2.0}


def test_a_canceled_family_counts_each_member(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, children = make_collection(c, 3)
        start_run(c, children[0].id)
        moves.cancel(c, parent.id, now=NOW)
    assert counted(engine, "jobs_total") == {("best", "CANCELED"): 4.0}
    assert runs_counted(engine)["canceled", "parse"] == 1.0


def test_two_who_fold_at_once_count_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        for _ in range(300):
            tallies.note(c, of_run("parse", "ok", 0.2))

    def fold() -> int:
        total = 0
        while True:
            with write(engine) as c:
                folded = tallies.fold(c, limit=20)
            total += folded
            if not folded:
                return total

    with ThreadPoolExecutor(4) as pool:
        folded = [future.result(60) for future in [pool.submit(fold) for _ in range(4)]]
    # One that found all rows locked may stop early; nothing is left by all of them together.
    assert sum(folded) == 300
    assert runs_counted(engine) == {("ok", "parse"): 300.0}
    with read(engine) as c:
        assert not tallies.has_events(c)
        assert c.execute(sa.select(sa.func.count()).select_from(tally_events)).scalar() == 0


@pytest.mark.parametrize("status", [s for s in Status if s in TERMINAL])
def test_every_label_is_of_the_fixed_set(engine: sa.Engine, status: Status) -> None:
    with write(engine) as c:
        make_job_in(c, status)
        events = c.execute(sa.select(tally_events)).all()
    assert events
    for event in events:
        metric = METRICS[event.metric]
        labels = json.loads(event.labels)
        assert set(labels) == set(metric.labels)
        for label, values in metric.labels.items():
            assert isinstance(values, str) or labels[label] in values


def test_a_bucket_holds_what_is_at_most_its_bound() -> None:
    bounds = METRICS["stage_duration_seconds"].buckets
    for value, bound in [(0.0, 0.1), (0.1, 0.1), (0.11, 0.25), (86_400, 86_400.0)]:
        [(series, labels), _] = cells("stage_duration_seconds", "{}", value)
        assert series == "stage_duration_seconds_bucket"
        assert json.loads(labels) == {"le": str(float(bound))}
        assert bound in bounds
    [(_, labels), _] = cells("stage_duration_seconds", "{}", 86_401)
    assert json.loads(labels) == {"le": "+Inf"}


def test_an_event_of_a_newer_version_is_dropped(engine: sa.Engine) -> None:
    with write(engine) as c:
        tallies.note(c, [Tally("of_tomorrow_total", {})])
        assert tallies.fold(c) == 1
        assert tallies.read(c) == {}


def test_histograms_reach_hours() -> None:
    for metric in METRICS.values():
        if metric.kind is Kind.HISTOGRAM and metric.name.startswith(("job_", "stage_")):
            assert metric.buckets[-1] >= 4 * 3600
