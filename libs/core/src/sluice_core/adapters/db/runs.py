"""What a run may write: claimed by compare-and-set, then conditional on its own epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import callbacks, dead_letters, outbox
from sluice_core.adapters.db.rows import error_columns, next_version, progress_columns, to_job
from sluice_core.adapters.db.schema import artifacts, attempts, jobs
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import Artifact, Job, JobError, Progress
from sluice_core.domain.lanes import Actor, Lane, queue_name
from sluice_core.domain.quarantine import SUSPECT_AFTER
from sluice_core.domain.states import ACTIVE, RUNNING_STATE, Status, WaitingFor, may_move


@dataclass(frozen=True, slots=True)
class Claim:
    """A won claim: the job as it is now, and the attempt that this run is."""

    job: Job
    attempt_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Message:
    """What the broker delivered, with its own id and queue."""

    id: str
    queue: str
    job_id: str
    epoch: int
    delivered_at: float
    #: When its publisher sent it.
    published_at: float | None = None
    traceparent: str | None = None
    #: How often it was given to a worker, this time included.
    deliveries: int = 1


#: Runs of one job's stage that are remembered, the newest ones.
ATTEMPTS_KEPT = 100

_NO_PROGRESS = progress_columns(Progress())
_ACTIVE = [s.value for s in ACTIVE]
#: What only a run itself writes.
_OWN_OUTCOMES = ("ok", "failed", "retry", "handed_back")


def claim(
    connection: sa.Connection,
    *,
    stage: Actor,
    message: Message,
    worker: str,
    now: float,
    attempt_id: str | None = None,
    alone: bool = True,
) -> Claim | None:
    """Win the job for this run, or None when the message is late, doubled or of no use.

    Compare-and-set on the epoch that the message names; winning raises it by one, so no second
    message and no earlier run can write any more.

    Args:
        connection: of the caller's transaction.
        stage: the worker's own.
        message: what it was given.
        worker: its id.
        now: Unix seconds.
        attempt_id: chosen by the caller, who can then find out whether a commit went through.
        alone: the run has a process of its own, so that a suspect job may be claimed.

    """
    won = connection.execute(
        sa.update(jobs)
        .where(*_awaits(stage, message), sa.true() if alone else jobs.c.losses < SUSPECT_AFTER)
        .values(
            status=RUNNING_STATE[stage].value,
            epoch=jobs.c.epoch + 1,
            waiting_for=None,
            retry_at=None,
            tries=jobs.c.tries + 1,
            updated_at=now,
            **error_columns(None),
            **_NO_PROGRESS,
            **next_version(),
        )
        .returning(jobs)
    ).first()
    if won is None:
        return None
    job = to_job(won)
    published = outbox.get(connection, message.id)
    outbox.remove_of_job(connection, job.id)
    same_stage = sa.and_(attempts.c.job_id == job.id, attempts.c.stage == stage.value)
    newest = connection.execute(sa.select(sa.func.max(attempts.c.number)).where(same_stage))
    number = newest.scalar() or 0
    if number >= ATTEMPTS_KEPT:
        # Uncounted runs, e.g. handed back ones, have no other end.
        outdated = attempts.c.number <= number + 1 - ATTEMPTS_KEPT
        connection.execute(sa.delete(attempts).where(same_stage, outdated))
    attempt_id = attempt_id or new_id()
    connection.execute(
        sa.insert(attempts).values(
            id=attempt_id,
            job_id=job.id,
            stage=stage.value,
            number=number + 1,
            epoch=job.epoch,
            worker=worker,
            message_id=message.id,
            queue=message.queue,
            published_at=message.published_at,
            publishes=max(1, published.publishes) if published else 1,
            deliveries=message.deliveries,
            delivered_at=message.delivered_at,
            claimed_at=now,
        )
    )
    return Claim(job, attempt_id, number + 1)


def _awaits(stage: Actor, message: Message) -> tuple[sa.ColumnElement[bool], ...]:
    """Whether the job still waits for this very message."""
    return (
        jobs.c.id == message.job_id,
        jobs.c.epoch == message.epoch,
        jobs.c.stage == stage.value,
        jobs.c.status.in_(_ACTIVE),
        jobs.c.deleted_at.is_(None),
    )


def is_suspect(connection: sa.Connection, *, stage: Actor, message: Message) -> bool:
    """Whether the job waits for this message, but for a process of its own to run in."""
    query = sa.select(jobs.c.id).where(*_awaits(stage, message), jobs.c.losses >= SUSPECT_AFTER)
    return connection.execute(query).first() is not None


def link_of(connection: sa.Connection, *, stage: Actor, message: Message) -> str | None:
    """The link of the job, if it still waits for this message."""
    return connection.execute(sa.select(jobs.c.url).where(*_awaits(stage, message))).scalar()


def postpone(
    connection: sa.Connection,
    *,
    stage: Actor,
    message: Message,
    due_at: float,
    shown: bool,
    now: float,
) -> outbox.OutboxRow | None:
    """Order the same run for later instead of claiming it, uncounted; None when it is not wanted.

    A new row, and so a new message: this one's id may still be known to the broker then.

    Args:
        connection: of the caller's transaction.
        stage: whose message it is.
        message: as delivered.
        due_at: Unix seconds.
        shown: people are told the time; worth it when it is long.
        now: Unix seconds.

    """
    row = connection.execute(sa.select(jobs).where(*_awaits(stage, message))).first()
    if row is None:
        return None
    if shown:
        connection.execute(
            sa.update(jobs)
            .where(*_awaits(stage, message))
            .values(retry_at=due_at, updated_at=now, **next_version())
        )
    outbox.remove_of_job(connection, row.id)
    return _order(connection, to_job(row), now=now, due_at=due_at)


def attempt_exists(connection: sa.Connection, attempt_id: str) -> bool:
    """Whether the attempt was ever made."""
    query = sa.select(attempts.c.id).where(attempts.c.id == attempt_id)
    return connection.execute(query).first() is not None


def claimed_as(connection: sa.Connection, attempt_id: str) -> Claim | None:
    """The claim that was made with this attempt id, if it still holds."""
    row = connection.execute(
        sa.select(jobs, attempts.c.number.label("attempt_number"))
        .join(attempts, sa.and_(attempts.c.job_id == jobs.c.id, attempts.c.epoch == jobs.c.epoch))
        .where(attempts.c.id == attempt_id, attempts.c.ended_at.is_(None))
    ).first()
    return None if row is None else Claim(to_job(row), attempt_id, row.attempt_number)


def ended_itself(connection: sa.Connection, attempt_id: str) -> bool:
    """Whether the attempt was ended by its own run, not by a cancel or as lost."""
    query = sa.select(attempts.c.outcome).where(attempts.c.id == attempt_id)
    return connection.execute(query).scalar() in _OWN_OUTCOMES


def _fenced(connection: sa.Connection, job: Job, values: Mapping[str, Any], now: float) -> Job:
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
    return to_job(row)


def close_attempt(
    connection: sa.Connection,
    attempt_id: str,
    *,
    outcome: str,
    now: float,
    error: JobError | None = None,
) -> bool:
    """End an attempt once; False when it was already ended."""
    done = connection.execute(
        sa.update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.ended_at.is_(None))
        .values(
            ended_at=now,
            outcome=outcome,
            error_code=error.code if error else None,
            error_message=error.message if error else None,
        )
    )
    return done.rowcount == 1


def _end(
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
    job = _fenced(connection, run.job, values, now)
    if not close_attempt(connection, run.attempt_id, outcome=outcome, now=now, error=error):
        raise StaleRunError(f"attempt {run.attempt_id} has ended")
    return job


def write_progress(connection: sa.Connection, job: Job, progress: Progress, *, now: float) -> Job:
    """Raises `StaleRunError` when another run owns the job."""
    return _fenced(connection, job, progress_columns(progress), now)


def describe(connection: sa.Connection, job: Job, fields: Mapping[str, Any], *, now: float) -> Job:
    """Write what was learned (title, duration, plan, …). Raises `StaleRunError`."""
    return _fenced(connection, job, fields, now)


def advance(
    connection: sa.Connection,
    run: Claim,
    *,
    to: Actor,
    fields: Mapping[str, Any],
    now: float,
) -> tuple[Job, outbox.OutboxRow]:
    """This stage is done and the next one is asked for, in one transaction."""
    job = _end(
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
    return job, _order(connection, job, now=now)


def succeed(
    connection: sa.Connection,
    run: Claim,
    *,
    files: Sequence[Artifact],
    fields: Mapping[str, Any],
    expires_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]]:
    """The files are in storage: point at them and end the job, in one transaction.

    Raises:
        ValueError: there is no file, so nothing was finished.

    """
    if not files:
        raise ValueError("a finished job has no file")
    job = _end(
        connection,
        run,
        {
            **fields,
            "status": Status.SUCCESS.value,
            "waiting_for": None,
            "percent": 100.0,
            "eta_seconds": 0.0,
            "finished_at": now,
            "expires_at": expires_at,
            "sources": None,
            "plan": None,
            "sweep_at": now,
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
    return job, ask_to_settle(connection, job, now=now)


def expanded(
    connection: sa.Connection, run: Claim, *, fields: Mapping[str, Any], now: float
) -> tuple[Job, list[outbox.OutboxRow]]:
    """The list of a collection was read to its end: now its children decide."""
    job = _end(
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
    return job, [order_settle(connection, job.id, job.request.lane, now=now)]


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
    job = _end(
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
    return job, ask_to_settle(connection, job, now=now)


def retry_later(
    connection: sa.Connection, run: Claim, error: JobError, *, due_at: float, now: float
) -> tuple[Job, outbox.OutboxRow]:
    """Close this attempt and order the next one for `due_at`, in one transaction."""
    job = _end(
        connection,
        run,
        {
            **error_columns(error),
            "waiting_for": WaitingFor.RETRY.value,
            "retry_at": due_at,
            "bytes_per_second": None,
            "eta_seconds": None,
        },
        outcome="retry",
        now=now,
        error=error,
    )
    return job, _order(connection, job, now=now, due_at=due_at)


def hand_back(connection: sa.Connection, run: Claim, *, now: float) -> tuple[Job, outbox.OutboxRow]:
    """The worker stops: give the job back, uncounted, in one transaction."""
    job = _end(
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
    return job, _order(connection, job, now=now)


def _order(
    connection: sa.Connection, job: Job, *, now: float, due_at: float | None = None
) -> outbox.OutboxRow:
    """Ask for a run of the job's stage at its present epoch."""
    return outbox.add(
        connection,
        job_id=job.id,
        actor=job.stage,
        lane=job.request.lane,
        epoch=job.epoch,
        now=now,
        due_at=due_at,
        traceparent=job.traceparent,
        owner=job.owner,
    )


order = _order


def ask_to_settle(connection: sa.Connection, ended: Job, *, now: float) -> list[outbox.OutboxRow]:
    """Whoever ends a job asks that its parent be looked at, and that its submitter be told."""
    orders = callbacks.order(connection, ended, now=now)
    if ended.parent_id is not None:
        # Its children are counted by query.
        orders.append(order_settle(connection, ended.parent_id, ended.request.lane, now=now))
    return orders


def order_settle(
    connection: sa.Connection, parent_id: str, lane: Lane, *, now: float
) -> outbox.OutboxRow:
    # Settling is idempotent and claims nothing, so its message names no epoch of its own.
    return outbox.add(connection, job_id=parent_id, actor=Actor.SETTLE, lane=lane, epoch=0, now=now)


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


def declare_lost(
    connection: sa.Connection,
    attempt_id: str,
    *,
    max_losses: int,
    sweep_at: float,
    now: float,
) -> tuple[Job, list[outbox.OutboxRow]] | None:
    """Take the job from a worker that is gone and order it anew; None when it was not its owner.

    The epoch is raised, so that the lost one can write nothing should it wake up.
    """
    # The job's row first, as everywhere: two orders of locks are a deadlock.
    own = sa.select(attempts.c.job_id).where(attempts.c.id == attempt_id).scalar_subquery()
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == own).with_for_update())
    lost = connection.execute(sa.select(attempts).where(attempts.c.id == attempt_id)).first()
    if lost is None or not close_attempt(connection, attempt_id, outcome="lost", now=now):
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
    job = to_job(row)
    if job.losses < max_losses:
        return job, [_order(connection, job, now=now)]
    message = f"the job took {job.losses} workers down without getting anywhere"
    job = _fenced(
        connection,
        job,
        {
            **error_columns(JobError("worker_lost", "manual", message)),
            "status": Status.FAILED.value,
            "waiting_for": None,
            "finished_at": now,
            "dedup_key": None,
            "sweep_at": sweep_at,
        },
        now,
    )
    dead_letters.add(
        connection,
        queue=lost.queue,
        job_id=job.id,
        reason=f"worker_lost: {message}",
        payload="",
        now=now,
    )
    return job, ask_to_settle(connection, job, now=now)


def has_order(connection: sa.Connection, job_id: str) -> bool:
    """Whether a message for the job is on its way."""
    return (
        connection.execute(
            sa.select(outbox_table.c.id).where(outbox_table.c.job_id == job_id).limit(1)
        ).first()
        is not None
    )
