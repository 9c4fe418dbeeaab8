"""What a change of state asks for: a run, a look at the parent, a callback."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from sluice_core.adapters.db import callbacks, outbox
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor, Lane, queue_name


def order(
    connection: sa.Connection, job: Job, *, now: float, due_at: float | None = None
) -> outbox.OutboxRow:
    """Ask for a run of the job's stage at its present epoch."""
    (row,) = order_many(connection, [job], now=now, due_at=due_at)
    return row


def order_many(
    connection: sa.Connection, jobs: Sequence[Job], *, now: float, due_at: float | None = None
) -> list[outbox.OutboxRow]:
    """Ask for a run of each job's stage at its present epoch."""
    rows = [
        outbox.OutboxRow(
            id=new_id(),
            job_id=job.id,
            actor=job.stage,
            queue=queue_name(job.stage, job.request.lane),
            epoch=job.epoch,
            due_at=now if due_at is None else due_at,
            traceparent=job.traceparent,
            owner=job.owner,
        )
        for job in jobs
    ]
    outbox.add_many(connection, rows, now)
    return rows


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
