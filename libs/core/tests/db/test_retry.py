"""Retry by hand goes on from the first stage not yet done."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import collections, details, jobs, listing, moves, outbox, runs
from sluice_core.adapters.db.engine import write
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.states import ACTIVE, RUNNING_STATE, Status, WaitingFor
from sluice_testing.factories import (
    NOW,
    fail,
    finish,
    make_collection,
    make_job_in,
    run_at,
    settle,
    start_run,
)


def _get(c: sa.Connection, job_id: str) -> Job:
    job = jobs.get(c, job_id)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("stage", "status"),
    [
        (Actor.PARSE, Status.PENDING),
        (Actor.DOWNLOAD, Status.DOWNLOADING),
        (Actor.TRANSCODE, Status.MERGING),
    ],
)
def test_from_the_stage_that_failed(engine: sa.Engine, stage: Actor, status: Status) -> None:
    with write(engine) as c:
        run = run_at(c, stage)
        failed = fail(c, run)
        orders = moves.retry(c, run.job.id, now=NOW + 5)
        assert orders is not None
        (order,) = orders
        job = _get(c, run.job.id)
        assert (job.status, job.stage, job.waiting_for) == (status, stage, WaitingFor.WORKER)
        assert (order.actor, order.epoch, order.due_at) == (stage, job.epoch, NOW + 5)
        assert job.epoch == failed.epoch + 1
        assert (job.error, job.finished_at, job.tries, job.losses) == (None, None, 0, 0)
        assert start_run(c, job.id).job.tries == 1


def test_from_a_stage_that_was_added(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `docs/adding-a-stage.md`: named, put among the others, and found by a retry."""
    added = Actor.NOTIFY  # has queues, and is no stage
    monkeypatch.setattr(moves, "STAGES", (*STAGES[:-1], added, STAGES[-1]))
    monkeypatch.setitem(RUNNING_STATE, added, Status.MERGING)
    monkeypatch.setattr(moves, "first_stage_left", lambda _job: added)
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        fail(c, run)
        orders = moves.retry(c, run.job.id, now=NOW)
        assert orders is not None
        assert [order.actor for order in orders] == [added]
        job = _get(c, run.job.id)
        assert (job.status, job.stage) == (Status.MERGING, added)


def test_a_canceled_job_begins_again_since_its_files_went(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        moves.cancel(c, run.job.id, now=NOW)
        moves.retry(c, run.job.id, now=NOW)
        assert _get(c, run.job.id).stage is Actor.PARSE


@pytest.mark.parametrize("status", [*sorted(ACTIVE), Status.SUCCESS])
def test_what_may_not_be_retried(engine: sa.Engine, status: Status) -> None:
    with write(engine) as c:
        job = make_job_in(c, status)
        assert moves.retry(c, job.id, now=NOW) is None
        assert _get(c, job.id) == job
        assert moves.retry(c, "0" * 26, now=NOW) is None


def test_a_collection_starts_its_bad_children_only(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job_in(c, Status.PARTIAL)
        orders = moves.retry(c, job.id, now=NOW)
        assert orders is not None
        assert sorted(o.actor for o in orders) == [Actor.PARSE, Actor.SETTLE]
        again = _get(c, job.id)
        assert (again.status, again.waiting_for) == (Status.DOWNLOADING, WaitingFor.CHILDREN)
        counts = details.child_counts(c, [job.id])[job.id]
        assert (counts.success, counts.active, counts.failed) == (1, 1, 0)
        assert settle(c, job.id) is None


def test_a_collection_canceled_while_its_list_was_read(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        (first,) = collections.add_children(
            c, run, [{"url": "https://media.example/1", "key": "1"}], now=NOW
        )
        moves.cancel(c, run.job.id, now=NOW)
        orders = moves.retry(c, run.job.id, now=NOW)
        assert orders is not None
        assert sorted(o.job_id for o in orders) == sorted([run.job.id, first.job_id])
        assert _get(c, first.job_id).status is Status.PENDING
        again = start_run(c, run.job.id)
        entries = [{"url": f"https://media.example/{n}", "key": f"{n}"} for n in (1, 2)]
        assert len(collections.add_children(c, again, entries, now=NOW)) == 1


@pytest.mark.parametrize("from_status", [Status.FAILED, Status.PARTIAL])
def test_retrying_one_child_opens_its_parent(engine: sa.Engine, from_status: Status) -> None:
    with write(engine) as c:
        if from_status is Status.PARTIAL:
            parent = make_job_in(c, Status.PARTIAL)
        else:
            parent, children = make_collection(c, 1)
            fail(c, start_run(c, children[0].id))
            settle(c, parent.id)
        where = listing.Filter(parent_id=parent.id, status=[Status.FAILED])
        (bad,) = listing.list_page(c, where, before_id=None, limit=9)
        moves.retry(c, bad.id, now=NOW)
        opened = _get(c, parent.id)
        assert (opened.status, opened.waiting_for) == (Status.DOWNLOADING, WaitingFor.CHILDREN)
        assert (opened.error, opened.finished_at) == (None, None)
        run = start_run(c, bad.id)
        for stage in (Actor.DOWNLOAD, Actor.TRANSCODE):
            runs.advance(c, run, to=stage, fields={}, now=NOW)
            run = start_run(c, bad.id)
        finish(c, run)
        ended = settle(c, parent.id)
        assert ended is not None
        assert ended.status is Status.SUCCESS


def test_a_retried_child_leaves_a_running_parent_alone(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (bad, _other) = make_collection(c, 2)
        fail(c, start_run(c, bad.id))
        before = _get(c, parent.id)
        moves.retry(c, bad.id, now=NOW)
        assert _get(c, parent.id) == before
        assert outbox.of_job(c, bad.id)
