"""A run whose epoch is gone can change nothing, by whatever function it tries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import (
    claims,
    collections,
    details,
    jobs,
    liveness,
    moves,
    outbox,
    runs,
)
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import artifacts
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_testing.factories import ERROR, NOW, fail, finish, run_at, start_run

WRITES: dict[str, Callable[[sa.Connection, claims.Claim], object]] = {
    "write_progress": lambda c, r: runs.write_progress(c, r.job, Progress(percent=1.0), now=NOW),
    "describe": lambda c, r: runs.describe(c, r.job, {"title": "late"}, now=NOW),
    "advance": lambda c, r: runs.advance(c, r, to=Actor.TRANSCODE, fields={}, now=NOW),
    "succeed": finish,
    "expanded": lambda c, r: runs.expanded(c, r, fields={}, now=NOW),
    "fail": fail,
    "retry_later": lambda c, r: runs.retry_later(c, r, ERROR, due_at=NOW + 9, now=NOW),
    "hand_back": lambda c, r: runs.hand_back(c, r, now=NOW),
    "add_children": lambda c, r: collections.add_children(
        c, r, [{"url": "https://media.example/x", "key": "x"}], now=NOW
    ),
}

TAKEN_BY: dict[str, Callable[[sa.Connection, claims.Claim], object]] = {
    "cancel": lambda c, r: moves.cancel(c, r.job.id, now=NOW),
    "delete": lambda c, r: moves.delete(c, r.job.id, now=NOW),
    "lost": lambda c, r: liveness.declare_lost(
        c, r.attempt_id, max_losses=9, sweep_at=NOW, now=NOW
    ),
    "lost and run again": lambda c, r: (
        liveness.declare_lost(c, r.attempt_id, max_losses=9, sweep_at=NOW, now=NOW),
        start_run(c, r.job.id, worker="another"),
    ),
    "ended": fail,
}


@pytest.mark.parametrize("taken", TAKEN_BY)
@pytest.mark.parametrize("name", WRITES)
def test_a_stale_write_is_refused_and_leaves_no_trace(
    engine: sa.Engine, name: str, taken: str
) -> None:
    stage = Actor.PARSE if name in {"expanded", "add_children"} else Actor.DOWNLOAD
    with write(engine) as c:
        run = run_at(c, stage)
        TAKEN_BY[taken](c, run)
        before = _everything(c, run.job.id)
    with pytest.raises(StaleRunError), write(engine) as c:
        WRITES[name](c, run)
    with read(engine) as c:
        assert _everything(c, run.job.id) == before


@pytest.mark.parametrize("name", ["advance", "succeed", "fail", "retry_later", "hand_back"])
def test_an_end_is_written_once(engine: sa.Engine, name: str) -> None:
    """A commit whose answer got lost is tried again: nothing may be ordered twice."""
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
    with write(engine) as c:
        WRITES[name](c, run)
        before = _everything(c, run.job.id)
    with pytest.raises(StaleRunError), write(engine) as c:
        WRITES[name](c, run)
    with read(engine) as c:
        assert _everything(c, run.job.id) == before


def test_a_lost_run_is_declared_once_and_never_after_its_end(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        assert _lost(c, run) is not None
        assert _lost(c, run) is None
        again = start_run(c, run.job.id)
        fail(c, again)
        assert _lost(c, again) is None


def _lost(c: sa.Connection, run: claims.Claim) -> object:
    return liveness.declare_lost(c, run.attempt_id, max_losses=9, sweep_at=NOW, now=NOW)


def _everything(c: sa.Connection, job_id: str) -> object:
    family = sa.select(sa.func.count()).select_from(artifacts)
    return (
        jobs.get(c, job_id),
        jobs.attempts_of(c, job_id),
        outbox.of_job(c, job_id),
        details.child_counts(c, [job_id]),
        c.execute(family.where(artifacts.c.job_id == job_id)).scalar_one(),
    )
