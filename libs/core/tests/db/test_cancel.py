"""Cancel ends whatever is active, takes back what was ordered, and holds against late messages."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import claims, details, jobs, liveness, moves, outbox, runs
from sluice_core.adapters.db.engine import write
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import TERMINAL, Status
from sluice_testing.factories import (
    ERROR,
    NOW,
    finish,
    make_collection,
    make_job,
    make_job_in,
    message_of,
    next_order,
    run_at,
    settle,
    start_run,
)


def _canceled(c: sa.Connection, job_id: str) -> None:
    job = jobs.get(c, job_id)
    assert job is not None
    assert (job.status, job.waiting_for, job.retry_at) == (Status.CANCELED, None, None)
    assert job.error is not None
    assert (job.error.code, job.finished_at) == ("canceled", NOW + 9)
    assert (job.sources, job.plan, job.progress.percent) == (None, None, None)
    assert outbox.of_job(c, job_id) == []
    assert all(a.ended_at for a in jobs.attempts_of(c, job_id))


def test_queued(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c, dedup_key="k")
        late = message_of(next_order(c, job.id))
        assert moves.cancel(c, job.id, now=NOW + 9) is not None
        _canceled(c, job.id)
        assert claims.claim(c, stage=Actor.PARSE, message=late, worker="w", now=NOW) is None
        # The link may be asked for again.
        assert make_job(c, dedup_key="k")


def test_waiting_for_its_start_time(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c, not_before=NOW + 3600)
        moves.cancel(c, job.id, now=NOW + 9)
        _canceled(c, job.id)


def test_waiting_to_try_again(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.retry_later(c, run, ERROR, due_at=NOW + 600, now=NOW)
        moves.cancel(c, run.job.id, now=NOW + 9)
        _canceled(c, run.job.id)


def test_running(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        moves.cancel(c, run.job.id, now=NOW + 9)
        _canceled(c, run.job.id)
        owners = liveness.owners(c, [run.job.id])
        assert owners[run.job.id] == (run.job.epoch + 1, Status.CANCELED)
        assert jobs.attempts_of(c, run.job.id)[-1].outcome == "canceled"


def test_a_collection_with_its_children(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (done, running, queued) = make_collection(c, 3)
        run = start_run(c, done.id)
        for stage in (Actor.DOWNLOAD, Actor.TRANSCODE):
            runs.advance(c, run, to=stage, fields={}, now=NOW)
            run = start_run(c, done.id)
        finish(c, run)
        start_run(c, running.id)
        other, _ = make_collection(c, 1)
        moves.cancel(c, parent.id, now=NOW + 9)
        for job_id in (parent.id, running.id, queued.id):
            _canceled(c, job_id)
        assert jobs.get(c, done.id).status is Status.SUCCESS  # type: ignore[union-attr]
        assert jobs.get(c, other.id).status is Status.DOWNLOADING  # type: ignore[union-attr]
        assert settle(c, parent.id) is None


def test_one_child_asks_its_parent(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (child,) = make_collection(c, 1)
        assert settle(c, parent.id) is None
        moves.cancel(c, child.id, now=NOW + 9)
        assert [r.actor for r in outbox.of_job(c, parent.id)] == ["settle"]
        ended = settle(c, parent.id)
        assert ended is not None
        assert ended.status is Status.FAILED


def test_a_collection_larger_than_a_statement_has_parameters(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (child,) = make_collection(c, 1)
        count = 33_000 if engine.dialect.name == "sqlite" else 66_000
        c.execute(
            sa.text(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
                " INSERT INTO jobs (id, entry_key, url, preset, lane, options, parent_id, status,"
                " stage, waiting_for, created_at, updated_at)"
                " SELECT 'C' || i, 'k' || i, url, preset, lane, options, parent_id, status,"
                " stage, waiting_for, created_at, updated_at FROM jobs, n WHERE id = :id"
            ),
            {"id": child.id, "count": count},
        )
        assert moves.cancel(c, parent.id, now=NOW + 9) is not None
        assert details.child_counts(c, [parent.id])[parent.id].canceled == count + 1


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_what_has_ended_is_not_canceled(engine: sa.Engine, status: Status) -> None:
    with write(engine) as c:
        job = make_job_in(c, status)
        assert moves.cancel(c, job.id, now=NOW + 9) is None
        assert jobs.get(c, job.id) == job
        assert moves.cancel(c, "0" * 26, now=NOW) is None


def test_a_callback_on_its_way_is_no_run(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        outbox.add(c, job_id=job.id, actor=Actor.NOTIFY, lane=Lane.DEFAULT, epoch=0, now=NOW)
        start_run(c, job.id)
        assert [r.actor for r in outbox.of_job(c, job.id)] == ["notify"]
        moves.cancel(c, job.id, now=NOW)
        assert [r.actor for r in outbox.of_job(c, job.id)] == ["notify"]
