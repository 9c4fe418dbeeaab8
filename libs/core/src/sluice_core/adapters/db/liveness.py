"""Signs of life of runs, and what becomes of a job whose worker is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import dead_letters, ordering, outbox, runs, segments, tallies
from sluice_core.adapters.db.claims import Claim
from sluice_core.adapters.db.rows import error_columns, next_version, to_job
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.domain.errors import CODES
from sluice_core.domain.job import Job, JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import ACTIVE, Status, WaitingFor
from sluice_core.domain.tallies import of_job

_ACTIVE = [s.value for s in ACTIVE]


def beat(connection: sa.Connection, attempt_ids: Sequence[str]) -> None:
    """Raise the counters of this worker's open attempts."""
    if attempt_ids:
        connection.execute(
            sa.update(attempts)
            .where(attempts.c.id.in_(attempt_ids), attempts.c.ended_at.is_(None))
            .values(beat=attempts.c.beat + 1)
        )


def owners(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, tuple[int, Status]]:
    """Job id -> (epoch, status) of those that still exist: what a run checks itself against."""
    query = sa.select(jobs.c.id, jobs.c.epoch, jobs.c.status).where(
        jobs.c.id.in_(job_ids), jobs.c.deleted_at.is_(None)
    )
    return {r.id: (r.epoch, Status(r.status)) for r in connection.execute(query)}


def record_child(connection: sa.Connection, attempt_id: str, pid: int, started: int) -> None:
    """Remember the media child, so that a later run can prove it gone."""
    connection.execute(
        sa.update(attempts)
        .where(attempts.c.id == attempt_id)
        .values(child_pid=pid, child_started=started)
    )


def mark_progressed(connection: sa.Connection, attempt_id: str) -> None:
    """This run put something away that the next one goes on from: its loss blames nobody."""
    connection.execute(
        sa.update(attempts).where(attempts.c.id == attempt_id).values(progressed=True)
    )


def open_attempts(connection: sa.Connection) -> list[sa.Row[Any]]:
    """Attempts that have not ended: id, job_id, epoch, worker, beat."""
    query = sa.select(
        attempts.c.id, attempts.c.job_id, attempts.c.epoch, attempts.c.worker, attempts.c.beat
    ).where(attempts.c.ended_at.is_(None))
    return list(connection.execute(query))


def open_among(connection: sa.Connection, attempt_ids: Sequence[str]) -> set[str]:
    """Those attempts that have not ended."""
    query = sa.select(attempts.c.id).where(
        attempts.c.id.in_(attempt_ids), attempts.c.ended_at.is_(None)
    )
    return set(connection.execute(query).scalars())


def declare_lost(
    connection: sa.Connection,
    attempt_id: str,
    *,
    max_losses: int,
    sweep_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]] | None:
    """Take the job from a worker that is gone and order it anew; None when it was not its owner.

    The epoch is raised, so that the lost one can write nothing should it wake up. One that only
    helped takes nothing along: whoever comes next takes the segment that it held.
    """
    # The job's row first, as everywhere: two orders of locks are a deadlock.
    own = sa.select(attempts.c.job_id).where(attempts.c.id == attempt_id).scalar_subquery()
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == own).with_for_update())
    lost = connection.execute(sa.select(attempts).where(attempts.c.id == attempt_id)).first()
    if lost is None or not runs.close_attempt(connection, attempt_id, outcome="lost", now=now):
        return None
    if lost.stage == Actor.HELP.value:
        return None
    counted = 0 if lost.progressed else 1
    row = connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == lost.job_id, jobs.c.epoch == lost.epoch, jobs.c.status.in_(_ACTIVE))
        .values(
            epoch=jobs.c.epoch + 1,
            waiting_for=WaitingFor.WORKER.value,
            tries=jobs.c.tries - 1,
            losses=jobs.c.losses + counted,
            bytes_per_second=None,
            eta_seconds=None,
            updated_at=now,
            **next_version(),
        )
        .returning(jobs)
    ).first()
    if row is None:
        return None
    return _go_on(
        connection, to_job(row), lost.queue, max_losses=max_losses, sweep_at=sweep_at, now=now
    )


def lose_child(
    connection: sa.Connection,
    run: Claim,
    reason: str,
    *,
    max_losses: int,
    sweep_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]]:
    """Somebody else ended the media child of a run whose worker lives: a loss all the same.

    Raises:
        StaleRunError: another run owns the job by now.

    """
    lost = connection.execute(
        sa.select(attempts.c.progressed, attempts.c.queue).where(attempts.c.id == run.attempt_id)
    ).one()
    job = runs.end_run(
        connection,
        run,
        {
            "waiting_for": WaitingFor.WORKER.value,
            "tries": jobs.c.tries - 1,
            "losses": jobs.c.losses + (0 if lost.progressed else 1),
            "bytes_per_second": None,
            "eta_seconds": None,
        },
        outcome="child_lost",
        error=JobError("worker_lost", CODES["worker_lost"].error_class.value, reason),
        now=now,
    )
    return _go_on(connection, job, lost.queue, max_losses=max_losses, sweep_at=sweep_at, now=now)


def _go_on(
    connection: sa.Connection,
    job: Job,
    queue: str,
    *,
    max_losses: int,
    sweep_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]]:
    """Order the job anew after a loss, or put it aside."""
    if job.losses < max_losses:
        return job, [ordering.order(connection, job, now=now)]
    message = f"{job.losses} runs were lost with their worker or child and got nowhere"
    job = runs.fenced(
        connection,
        job,
        {
            **error_columns(
                JobError("worker_lost", CODES["worker_lost"].error_class.value, message)
            ),
            "status": Status.FAILED.value,
            "waiting_for": None,
            "finished_at": now,
            "dedup_key": None,
            "sweep_at": sweep_at,
        },
        now,
    )
    tallies.note(connection, of_job(job))
    segments.withdraw(connection, job.id)
    dead_letters.add(
        connection,
        queue=queue,
        job_id=job.id,
        reason=f"worker_lost: {message}",
        payload="",
        now=now,
    )
    return job, ordering.ask_to_settle(connection, job, now=now)
