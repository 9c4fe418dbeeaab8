"""What a run may write: each write is conditional on its own epoch, its end also on its attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import dead_letters, ordering, outbox, search, segments, tallies
from sluice_core.adapters.db.claims import Claim
from sluice_core.adapters.db.rows import error_columns, next_version, progress_columns, to_job
from sluice_core.adapters.db.schema import artifacts, attempts, jobs
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.gaps import Gap, in_words
from sluice_core.domain.job import Artifact, Job, JobError, Progress
from sluice_core.domain.lanes import Actor, queue_name
from sluice_core.domain.states import (
    ACTIVE,
    RUNNING_STATE,
    TERMINAL,
    Status,
    WaitingFor,
    may_move,
)
from sluice_core.domain.tallies import of_job, of_run

_NO_PROGRESS = progress_columns(Progress())
_ACTIVE = [s.value for s in ACTIVE]
#: What only a run itself writes.
_OWN_OUTCOMES = ("ok", "failed", "retry", "handed_back", "child_lost")


def ended_itself(connection: sa.Connection, attempt_id: str) -> bool:
    """Whether the attempt was ended by its own run, not by a cancel or as lost."""
    query = sa.select(attempts.c.outcome).where(attempts.c.id == attempt_id)
    return connection.execute(query).scalar() in _OWN_OUTCOMES


def fenced(connection: sa.Connection, job: Job, values: Mapping[str, Any], now: float) -> Job:
    """Write to the job as the run of `job.epoch`, or raise `StaleRunError`.

    A move that the table of states forbids is a fault of the caller: `ValueError`.
    """
    new = Status(values.get("status", job.status))
    if new is not job.status and not may_move(job.status, new):
        raise ValueError(f"a job can't move from {job.status} to {new}")
    row = connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == job.id, jobs.c.epoch == job.epoch, jobs.c.status.in_(_ACTIVE))
        .values(updated_at=now, **values, **next_version())
        .returning(jobs)
    ).first()
    if row is None:
        raise StaleRunError(f"job {job.id} is no longer at epoch {job.epoch}")
    if values.get("title", job.title) != job.title:
        search.rename(connection, job.id, row.title)
    return to_job(row)


def close_attempt(
    connection: sa.Connection,
    attempt_id: str,
    *,
    outcome: str,
    now: float,
    error: JobError | None = None,
) -> bool:
    """End an attempt once, and count it; False when it was already ended."""
    ended = connection.execute(
        sa.update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.ended_at.is_(None))
        .values(
            ended_at=now,
            outcome=outcome,
            error_code=error.code if error else None,
            error_message=error.message if error else None,
        )
        .returning(attempts.c.stage, attempts.c.claimed_at)
    ).first()
    if ended is None:
        return False
    took = now - ended.claimed_at
    tallies.note(connection, of_run(ended.stage, outcome, took, error=error))
    return True


def end_run(
    connection: sa.Connection,
    run: Claim,
    values: Mapping[str, Any],
    *,
    outcome: str,
    now: float,
    error: JobError | None = None,
) -> Job:
    """Close the attempt and write the job, once.

    A commit whose answer got lost is tried again by its run: the second time finds the attempt
    closed and is refused as stale, so that nothing is ordered twice.
    """
    # The job's row first, as everywhere: two orders of locks are a deadlock.
    job = fenced(connection, run.job, values, now)
    if not close_attempt(connection, run.attempt_id, outcome=outcome, now=now, error=error):
        raise StaleRunError(f"attempt {run.attempt_id} has ended")
    if job.status in TERMINAL:
        tallies.note(connection, of_job(job))
        if job.stage is Actor.TRANSCODE:
            segments.withdraw(connection, job.id)
    return job


def write_progress(connection: sa.Connection, job: Job, progress: Progress, *, now: float) -> Job:
    """Raises `StaleRunError` when another run owns the job."""
    return fenced(connection, job, progress_columns(progress), now)


def describe(connection: sa.Connection, job: Job, fields: Mapping[str, Any], *, now: float) -> Job:
    """Write what was learned (title, duration, plan, …). Raises `StaleRunError`."""
    return fenced(connection, job, fields, now)


def advance(
    connection: sa.Connection,
    run: Claim,
    *,
    to: Actor,
    fields: Mapping[str, Any],
    now: float,
) -> tuple[Job, outbox.OutboxRow]:
    """This stage is done and the next one is asked for, in one transaction."""
    job = end_run(
        connection,
        run,
        {
            **fields,
            **_NO_PROGRESS,
            "status": RUNNING_STATE[to].value,
            "stage": to.value,
            "waiting_for": WaitingFor.WORKER.value,
            "tries": 0,
            "losses": 0,
        },
        outcome="ok",
        now=now,
    )
    return job, ordering.order(connection, job, now=now)


def succeed(
    connection: sa.Connection,
    run: Claim,
    *,
    files: Sequence[Artifact],
    fields: Mapping[str, Any],
    expires_at: float,
    now: float,
    gaps: Sequence[Gap] = (),
    sweep_at: float | None = None,
) -> tuple[Job, list[outbox.OutboxRow]]:
    """The files are in storage: point at them and end the job, in one transaction.

    With `gaps` the job is done in part, and what was fetched stays until `sweep_at`, so that a
    retry asks for the rest alone.

    Raises:
        ValueError: there is no file, so nothing was finished.

    """
    if not files:
        raise ValueError("a finished job has no file")
    job = end_run(
        connection,
        run,
        {
            **fields,
            **error_columns(JobError("incomplete", "permanent", in_words(gaps)) if gaps else None),
            "gaps": [gap.to_json() for gap in gaps] or None,
            "status": (Status.PARTIAL if gaps else Status.SUCCESS).value,
            "waiting_for": None,
            "percent": 100.0,
            "eta_seconds": 0.0,
            "finished_at": now,
            "expires_at": expires_at,
            "sources": None,
            "plan": _plan_to_go_on(run.job) if gaps else None,
            "sweep_at": sweep_at if gaps and sweep_at is not None else now,
        },
        outcome="ok",
        now=now,
    )
    connection.execute(sa.delete(artifacts).where(artifacts.c.job_id == job.id))
    connection.execute(
        sa.insert(artifacts),
        [
            {
                "job_id": job.id,
                "name": f.name,
                "kind": f.kind,
                "key": f.key,
                "bytes": f.bytes,
                "sha256": f.sha256,
                "content_type": f.content_type,
                "created_at": now,
            }
            for f in files
        ],
    )
    return job, ordering.ask_to_settle(connection, job, now=now)


def _plan_to_go_on(job: Job) -> dict[str, Any] | None:
    """What a retry needs to ask for what is missing alone."""
    return {**job.plan, "fetched": job.sources} if job.plan else None


def expanded(
    connection: sa.Connection, run: Claim, *, fields: Mapping[str, Any], now: float
) -> tuple[Job, list[outbox.OutboxRow]]:
    """The list of a collection was read to its end: now its children decide."""
    job = end_run(
        connection,
        run,
        {
            **fields,
            **_NO_PROGRESS,
            "status": Status.DOWNLOADING.value,
            "waiting_for": WaitingFor.CHILDREN.value,
            "expansion_done": True,
        },
        outcome="ok",
        now=now,
    )
    return job, [ordering.order_settle(connection, job.id, job.request.lane, now=now)]


def fail(
    connection: sa.Connection,
    run: Claim,
    error: JobError,
    *,
    dead: bool,
    sweep_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]]:
    """End the job with an error; `dead` also leaves a dead letter for a person to look at."""
    job = end_run(
        connection,
        run,
        {
            **error_columns(error),
            "status": Status.FAILED.value,
            "waiting_for": None,
            "finished_at": now,
            "dedup_key": None,
            "eta_seconds": None,
            "sweep_at": sweep_at,
        },
        outcome="failed",
        now=now,
        error=error,
    )
    if dead:
        dead_letters.add(
            connection,
            queue=queue_name(job.stage, job.request.lane),
            job_id=job.id,
            reason=f"{error.code}: {error.message}",
            payload="",
            now=now,
        )
    return job, ordering.ask_to_settle(connection, job, now=now)


def retried_for(connection: sa.Connection, job: Job, code: str) -> int:
    """Runs of the job's stage that ended with the code and were tried again, for this request."""
    query = sa.select(sa.func.count()).where(
        attempts.c.job_id == job.id,
        attempts.c.stage == job.stage.value,
        attempts.c.outcome == "retry",
        attempts.c.error_code == code,
        attempts.c.claimed_at >= (job.wanted_at or 0.0),
    )
    return connection.execute(query).scalar_one()


def retry_later(
    connection: sa.Connection,
    run: Claim,
    error: JobError,
    *,
    due_at: float,
    now: float,
    counted: bool = True,
) -> tuple[Job, outbox.OutboxRow]:
    """Close this attempt and order the next one for `due_at`, in one transaction.

    Without `counted` it was none of the job's tries.
    """
    job = end_run(
        connection,
        run,
        {
            **error_columns(error),
            "waiting_for": WaitingFor.RETRY.value,
            "retry_at": due_at,
            "tries": jobs.c.tries - (0 if counted else 1),
            "bytes_per_second": None,
            "eta_seconds": None,
        },
        outcome="retry",
        now=now,
        error=error,
    )
    return job, ordering.order(connection, job, now=now, due_at=due_at)


def hand_back(connection: sa.Connection, run: Claim, *, now: float) -> tuple[Job, outbox.OutboxRow]:
    """The worker stops: give the job back, uncounted, in one transaction."""
    job = end_run(
        connection,
        run,
        {
            "waiting_for": WaitingFor.WORKER.value,
            "tries": jobs.c.tries - 1,
            "bytes_per_second": None,
            "eta_seconds": None,
        },
        outcome="handed_back",
        now=now,
    )
    return job, ordering.order(connection, job, now=now)
