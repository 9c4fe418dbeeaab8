"""How a message wins its job: claimed by compare-and-set on the epoch that it names."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import ordering, outbox
from sluice_core.adapters.db.rows import error_columns, next_version, progress_columns, to_job
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.quarantine import SUSPECT_AFTER
from sluice_core.domain.states import ACTIVE, RUNNING_STATE

#: Runs of one job's stage that are remembered, the newest ones.
ATTEMPTS_KEPT = 100
_NO_PROGRESS = progress_columns(Progress())
_ACTIVE = [s.value for s in ACTIVE]


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
    publishes = published.publishes if published else 1
    attempt_id = attempt_id or new_id()
    return open_attempt(
        connection,
        job,
        stage,
        message,
        worker=worker,
        publishes=publishes,
        now=now,
        attempt_id=attempt_id,
    )


def open_attempt(
    connection: sa.Connection,
    job: Job,
    stage: Actor,
    message: Message,
    *,
    worker: str,
    publishes: int,
    now: float,
    attempt_id: str,
) -> Claim:
    """Note that a message's run begins; the job's row is locked by the caller."""
    number = _next_number(connection, job.id, stage)
    connection.execute(
        sa.insert(attempts).values(
            id=attempt_id,
            job_id=job.id,
            stage=stage.value,
            number=number,
            epoch=job.epoch,
            worker=worker,
            message_id=message.id,
            queue=message.queue,
            published_at=message.published_at,
            publishes=max(1, publishes),
            deliveries=message.deliveries,
            delivered_at=message.delivered_at,
            claimed_at=now,
        )
    )
    return Claim(job, attempt_id, number)


def _next_number(connection: sa.Connection, job_id: str, stage: Actor) -> int:
    """Number of the run that begins; of the earlier ones, those beyond the cap are forgotten."""
    same_stage = sa.and_(attempts.c.job_id == job_id, attempts.c.stage == stage.value)
    newest = connection.execute(sa.select(sa.func.max(attempts.c.number)).where(same_stage))
    number = (newest.scalar() or 0) + 1
    if number > ATTEMPTS_KEPT:
        # Uncounted runs, e.g. handed back ones, have no other end.
        outdated = attempts.c.number <= number - ATTEMPTS_KEPT
        connection.execute(sa.delete(attempts).where(same_stage, outdated))
    return number


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
    # Locked: one that is canceled just now would be ordered again, for a message that all drop.
    query = sa.select(jobs).where(*_awaits(stage, message)).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        return None
    if shown:
        connection.execute(
            sa.update(jobs)
            .where(*_awaits(stage, message))
            .values(retry_at=due_at, updated_at=now, **next_version())
        )
    outbox.remove_of_job(connection, row.id)
    return ordering.order(connection, to_job(row), now=now, due_at=due_at)


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
