"""The table of moves, held against every function that moves a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import claims, details, jobs, moves, runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import attempts
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import MOVES, RUNNING_STATE, Status, may_move
from sluice_testing.factories import (
    NOW,
    artifact,
    fail,
    finish,
    make_job_in,
    message_of,
    next_order,
    settle,
)

#: Each move as a person or a run would ask for it; None or an exception is a refusal.
_Ask = Callable[[sa.Connection, Job], object]


def _run_of(c: sa.Connection, job: Job) -> claims.Claim:
    """The run that holds the job, or held it last: a late one is a test of its own."""
    query = sa.select(attempts.c.id).where(attempts.c.job_id == job.id)
    found = list(c.execute(query.order_by(attempts.c.id.desc())).scalars())
    return claims.Claim(job, found[0] if found else "none", 1)


def _ask_claim(c: sa.Connection, job: Job) -> object:
    row = next_order(c, job.id)
    return claims.claim(c, stage=job.stage, message=message_of(row), worker="w", now=NOW)


def _ask_advance(to: Actor) -> _Ask:
    return lambda c, job: runs.advance(c, _run_of(c, job), to=to, fields={}, now=NOW)


def _ask_expanded(c: sa.Connection, job: Job) -> object:
    return runs.expanded(c, _run_of(c, job), fields={}, now=NOW)


def _ask_finish(c: sa.Connection, job: Job) -> object:
    return finish(c, _run_of(c, job))


def _ask_fail(c: sa.Connection, job: Job) -> object:
    return fail(c, _run_of(c, job))


def _ask_cancel(c: sa.Connection, job: Job) -> object:
    return moves.cancel(c, job.id, now=NOW)


def _ask_retry(c: sa.Connection, job: Job) -> object:
    return moves.retry(c, job.id, now=NOW)


def _ask_settle(c: sa.Connection, job: Job) -> object:
    return settle(c, job.id)


ASKS: dict[str, _Ask] = {
    "claim": _ask_claim,
    "advance to download": _ask_advance(Actor.DOWNLOAD),
    "advance to transcode": _ask_advance(Actor.TRANSCODE),
    "expanded": _ask_expanded,
    "finish": _ask_finish,
    "fail": _ask_fail,
    "cancel": _ask_cancel,
    "retry": _ask_retry,
    "settle": _ask_settle,
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("old", list(Status))
def test_every_ask_in_every_state_moves_as_the_table_says(
    engine: sa.Engine, old: Status, ask: str
) -> None:
    with write(engine) as c:
        job = make_job_in(c, old)
    refused = False
    try:
        with write(engine) as c:
            refused = ASKS[ask](c, job) is None
    except (StaleRunError, ValueError, IndexError):
        refused = True
    with read(engine) as c:
        after = jobs.get(c, job.id)
    assert after is not None
    if refused:
        assert (after.status, after.epoch, after.version) == (old, job.epoch, job.version)
    else:
        assert after.status is old or may_move(old, after.status)


@pytest.mark.parametrize(
    ("old", "ask", "new"),
    [
        (Status.PENDING, "claim", Status.PARSING),
        (Status.PARSING, "advance to download", Status.DOWNLOADING),
        (Status.PARSING, "expanded", Status.DOWNLOADING),
        (Status.DOWNLOADING, "advance to transcode", Status.MERGING),
        (Status.DOWNLOADING, "finish", Status.SUCCESS),
        (Status.MERGING, "finish", Status.SUCCESS),
        *((old, "fail", Status.FAILED) for old in RUNNING_STATE.values()),
        *((old, "cancel", Status.CANCELED) for old in [Status.PENDING, *RUNNING_STATE.values()]),
        (Status.CANCELED, "retry", Status.PENDING),
        (Status.PARTIAL, "retry", Status.DOWNLOADING),
        (Status.FAILED, "retry", Status.MERGING),
    ],
)
def test_allowed_moves_happen(engine: sa.Engine, old: Status, ask: str, new: Status) -> None:
    with write(engine) as c:
        job = make_job_in(c, old)
        assert ASKS[ask](c, job) is not None
        after = jobs.get(c, job.id)
    assert after is not None
    assert after.status is new


@pytest.mark.parametrize("ask", ASKS)
def test_success_is_left_only_by_deletion(engine: sa.Engine, ask: str) -> None:
    with write(engine) as c:
        job = make_job_in(c, Status.SUCCESS)
    try:
        with write(engine) as c:
            assert ASKS[ask](c, job) is None
    except (StaleRunError, ValueError, IndexError):
        pass
    with write(engine) as c:
        assert jobs.get(c, job.id) == job
        assert moves.delete(c, job.id, now=NOW)
        assert jobs.get(c, job.id) is None


def test_the_table_is_whole() -> None:
    assert set(MOVES) == set(Status)
    assert MOVES[Status.SUCCESS] == frozenset()
    for old, after in MOVES.items():
        assert old not in after


def test_a_finished_job_needs_a_file(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job_in(c, Status.MERGING)
    with pytest.raises(ValueError, match="no file"), write(engine) as c:
        runs.succeed(c, _run_of(c, job), files=[], fields={}, expires_at=NOW, now=NOW)
    with write(engine) as c:
        run = _run_of(c, job)
        runs.succeed(c, run, files=[artifact(run)], fields={}, expires_at=NOW, now=NOW)
        (file,) = details.files_of(c, [job.id])[job.id]
    assert file == artifact(run)
