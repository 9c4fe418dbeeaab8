"""Ends of jobs that somebody asked to be told of; each try is asked for by an outbox row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import dead_letters, details, outbox
from sluice_core.adapters.db.schema import callbacks, jobs
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor, Lane, queue_name
from sluice_core.domain.view import job_view


@dataclass(frozen=True, slots=True)
class Callback:
    """One end of one job."""

    job_id: str
    #: The job's epoch when it ended.
    epoch: int
    state: str
    lane: Lane
    url: str
    #: The job as it was then, in the form of the API.
    body: dict[str, Any]
    tries: int
    created_at: float
    #: `sent` or `gave_up`; None while it is on its way.
    outcome: str | None


def order(connection: sa.Connection, job: Job, *, now: float) -> list[outbox.OutboxRow]:
    """Ask to tell of the job's end, in the transaction that ends it; nothing if nobody asked.

    What will be sent is fixed here: the job may be started again before it is sent.
    """
    url = job.request.callback_url
    if url is None:
        return []
    files = details.files_of(connection, [job.id]).get(job.id, ())
    counts = details.child_counts(connection, [job.id]).get(job.id) if job.is_collection else None
    connection.execute(
        sa.insert(callbacks).values(
            job_id=job.id,
            epoch=job.epoch,
            state=job.status.value,
            lane=job.request.lane.value,
            url=url,
            body=job_view(job, files=files, children=counts),
            created_at=now,
        )
    )
    return [_ask(connection, job.id, job.epoch, job.request.lane, now=now, due_at=now)]


def _ask(
    connection: sa.Connection, job_id: str, epoch: int, lane: Lane, *, now: float, due_at: float
) -> outbox.OutboxRow:
    return outbox.add(
        connection,
        job_id=job_id,
        actor=Actor.NOTIFY,
        lane=lane,
        epoch=epoch,
        now=now,
        due_at=due_at,
        traceparent=connection.scalar(sa.select(jobs.c.traceparent).where(jobs.c.id == job_id)),
    )


def find(connection: sa.Connection, job_id: str, epoch: int) -> Callback | None:
    """What a message asks to send.

    A person who sends a dead letter back names the job as it is now; the newest end that was given
    up is meant then.
    """
    of_job = sa.select(callbacks).where(callbacks.c.job_id == job_id)
    row = connection.execute(of_job.where(callbacks.c.epoch == epoch)).first()
    if row is None:
        given_up = of_job.where(callbacks.c.outcome == "gave_up")
        row = connection.execute(given_up.order_by(callbacks.c.epoch.desc()).limit(1)).first()
    return _to_callback(row) if row else None


def _to_callback(row: sa.Row[Any]) -> Callback:
    return Callback(
        row.job_id, row.epoch, row.state, Lane(row.lane), row.url, row.body, row.tries,
        row.created_at, row.outcome,
    )  # fmt: skip


def sent(connection: sa.Connection, callback: Callback, *, now: float) -> None:
    """The receiver took it."""
    connection.execute(
        sa.update(callbacks)
        .where(*_same(callback))
        .values(tries=callback.tries + 1, ended_at=now, outcome="sent", error=None)
    )
    drop_orders(connection, callback.job_id, callback.epoch)


def failed(
    connection: sa.Connection, callback: Callback, error: str, *, due_at: float | None, now: float
) -> list[outbox.OutboxRow]:
    """Ask for the next try, or leave a dead letter when `due_at` is None.

    A doubled message whose twin was counted already changes nothing.
    """
    gave_up = due_at is None
    counted = connection.execute(
        sa.update(callbacks)
        .where(*_same(callback), callbacks.c.tries == callback.tries)
        .values(
            tries=callback.tries + 1,
            ended_at=now if gave_up else None,
            outcome="gave_up" if gave_up else None,
            error=error,
        )
    )
    if counted.rowcount != 1:
        return []
    drop_orders(connection, callback.job_id, callback.epoch)
    if due_at is not None:
        return [
            _ask(connection, callback.job_id, callback.epoch, callback.lane, now=now, due_at=due_at)
        ]
    dead_letters.add(
        connection,
        queue=queue_name(Actor.NOTIFY, callback.lane),
        job_id=callback.job_id,
        reason=f"callback of {callback.state}: {error}",
        payload=callback.url,
        now=now,
    )
    return []


def revive(connection: sa.Connection, callback: Callback, *, now: float) -> None:
    """A person asked to try again: it gets all of its tries and time once more."""
    connection.execute(
        sa.update(callbacks)
        .where(*_same(callback), callbacks.c.outcome == "gave_up")
        .values(tries=0, created_at=now, ended_at=None, outcome=None)
    )


def drop_orders(connection: sa.Connection, job_id: str, epoch: int) -> None:
    """Nothing more is to be sent for this end of the job."""
    connection.execute(
        sa.delete(outbox_table).where(
            outbox_table.c.job_id == job_id,
            outbox_table.c.actor == Actor.NOTIFY.value,
            outbox_table.c.epoch == epoch,
        )
    )


def purge(connection: sa.Connection, *, older_than: float) -> int:
    """Forget what was sent or given up long ago; returns how many."""
    old = sa.and_(callbacks.c.created_at <= older_than, callbacks.c.outcome.is_not(None))
    return connection.execute(sa.delete(callbacks).where(old)).rowcount


def _same(callback: Callback) -> tuple[sa.ColumnElement[bool], ...]:
    # One that was sent stays sent, whatever a doubled message says of it.
    return (
        callbacks.c.job_id == callback.job_id,
        callbacks.c.epoch == callback.epoch,
        sa.or_(callbacks.c.outcome.is_(None), callbacks.c.outcome != "sent"),
    )
