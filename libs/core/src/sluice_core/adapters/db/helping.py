"""Slots that help with a job's encode: best effort, and none of it a try of the job."""

from __future__ import annotations

import sqlalchemy as sa

from sluice_core.adapters.db import claims, outbox, runs, segments
from sluice_core.adapters.db.rows import to_job
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.job import Job, JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import RUNNING_STATE

_HELPED = RUNNING_STATE[Actor.TRANSCODE].value


def claim(
    connection: sa.Connection, *, message: claims.Message, worker: str, now: float, attempt_id: str
) -> claims.Claim | None:
    """Begin to help, or None when the message is late, doubled, foreign or of no use any more.

    Its row in the outbox is the permit: it is there once, and goes with the message, with the end
    of the job, and with the job's next run, which asks anew.

    Args:
        connection: of the caller's transaction.
        message: what the worker was given.
        worker: its id.
        now: Unix seconds.
        attempt_id: chosen by the caller, who can then find out whether a commit went through.

    """
    job = _job(connection, message.job_id)
    permit = connection.execute(
        sa.delete(outbox_table)
        .where(
            outbox_table.c.id == message.id,
            outbox_table.c.actor == Actor.HELP.value,
            outbox_table.c.job_id == message.job_id,
            outbox_table.c.epoch == message.epoch,
        )
        .returning(outbox_table.c.publishes)
    ).first()
    if job is None or permit is None or not segments.free(connection, job.id):
        return None
    return claims.open_attempt(
        connection,
        job,
        Actor.HELP,
        message,
        worker=worker,
        publishes=permit.publishes,
        now=now,
        attempt_id=attempt_id,
    )


def claimed_as(connection: sa.Connection, attempt_id: str) -> claims.Claim | None:
    """The help that was begun with this attempt id, if it is open."""
    row = connection.execute(
        sa.select(jobs, attempts.c.number.label("attempt_number"))
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(attempts.c.id == attempt_id, attempts.c.ended_at.is_(None))
    ).first()
    return None if row is None else claims.Claim(to_job(row), attempt_id, row.attempt_number)


def end(
    connection: sa.Connection,
    help_: claims.Claim,
    *,
    outcome: str,
    now: float,
    error: JobError | None = None,
    again: bool = False,
) -> list[outbox.OutboxRow]:
    """End it, once, and leave the rest to others.

    Args:
        connection: of the caller's transaction.
        help_: whose end it is.
        outcome: as in `attempts`.
        now: Unix seconds.
        error: why, when it failed.
        again: another slot is to go on, if there is something left to do.

    Returns:
        the rows to publish.

    """
    # The job's row first, as everywhere: two orders of locks are a deadlock.
    job = _job(connection, help_.job.id)
    if job is None:
        # Whatever went wrong, it did because there is nothing to help with any more.
        outcome, error = "canceled", None
    if not runs.close_attempt(connection, help_.attempt_id, outcome=outcome, now=now, error=error):
        return []
    segments.release(connection, help_.job.id, help_.attempt_id)
    if not again or job is None or not segments.free(connection, job.id):
        return []
    return [segments.ask(connection, job, now=now)]


def _job(connection: sa.Connection, job_id: str) -> Job | None:
    """The job, locked, if it is one that can be helped."""
    query = sa.select(jobs).where(
        jobs.c.id == job_id, jobs.c.status == _HELPED, jobs.c.deleted_at.is_(None)
    )
    row = connection.execute(query.with_for_update()).first()
    return None if row is None else to_job(row)
