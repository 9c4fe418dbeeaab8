"""The one door to the broker: rows written with the change of state that asks for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import outbox
from sluice_core.adapters.ids import new_id
from sluice_core.domain.lanes import Actor, Lane, queue_name

#: What a new run or a cancel makes pointless.
RUN_ACTORS = tuple(a.value for a in Actor if a is not Actor.NOTIFY)
#: What carries a job forward: help alone does not.
OWNERS = tuple(a for a in RUN_ACTORS if a != Actor.HELP.value)


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message to be published; its id is also the broker's message id."""

    id: str
    job_id: str
    actor: Actor
    queue: str
    epoch: int
    due_at: float
    traceparent: str | None = None
    #: Who submitted: an API key, or a collection.
    owner: str | None = None

    @property
    def turn_of(self) -> str:
        """Whose turn it is when this waits in the bulk lane; empty in all others."""
        return (self.owner or "-") if self.queue.endswith(f".{Lane.BULK.value}") else ""

    def args(self) -> dict[str, Any]:
        """What the message carries: ids only."""
        carried: dict[str, Any] = {"job": self.job_id, "epoch": self.epoch}
        if self.traceparent:
            carried["traceparent"] = self.traceparent
        return carried


def add(
    connection: sa.Connection,
    *,
    job_id: str,
    actor: Actor,
    lane: Lane,
    epoch: int,
    now: float,
    due_at: float | None = None,
    traceparent: str | None = None,
    owner: str | None = None,
) -> OutboxRow:
    """Write a row; hand it to the publisher once the transaction is committed."""
    row = OutboxRow(
        id=new_id(),
        job_id=job_id,
        actor=actor,
        queue=queue_name(actor, lane),
        epoch=epoch,
        due_at=now if due_at is None else due_at,
        traceparent=traceparent,
        owner=owner,
    )
    connection.execute(sa.insert(outbox), values_of(row, now))
    return row


def add_many(connection: sa.Connection, rows: Sequence[OutboxRow], now: float) -> None:
    if rows:
        connection.execute(sa.insert(outbox), [values_of(row, now) for row in rows])


def values_of(row: OutboxRow, now: float) -> dict[str, Any]:
    """Its columns, with the moment at which it is written."""
    return {
        "id": row.id,
        "job_id": row.job_id,
        "actor": row.actor.value,
        "queue": row.queue,
        "epoch": row.epoch,
        "due_at": row.due_at,
        "created_at": now,
        "traceparent": row.traceparent,
        "owner": row.owner,
    }


def _to_row(r: sa.Row[Any]) -> OutboxRow:
    m = r._mapping  # noqa: SLF001  # SQLAlchemy's documented way to read by name
    return OutboxRow(
        m["id"], m["job_id"], Actor(m["actor"]), m["queue"], m["epoch"], m["due_at"],
        m["traceparent"], m["owner"],
    )  # fmt: skip


def take_due(
    connection: sa.Connection, *, now: float, older_than: float, limit: int
) -> list[OutboxRow]:
    """Unpublished rows that are due, locked until the end of the transaction.

    Rows that were due from the start are left to their own writer, who publishes at once, for
    `older_than` seconds. Rows that another relay holds are skipped (PostgreSQL).
    """
    query = (
        sa.select(outbox)
        .where(outbox.c.published_at.is_(None), outbox.c.due_at <= now)
        .where(
            sa.or_(
                outbox.c.due_at > outbox.c.created_at,
                outbox.c.created_at <= now - older_than,
            )
        )
        .order_by(outbox.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return [_to_row(r) for r in connection.execute(query)]


def unclaimed(
    connection: sa.Connection, *, published_before: float, after_id: str, limit: int
) -> list[OutboxRow]:
    """Rows published before a time that no run has claimed, in pages by id."""
    query = (
        sa.select(outbox)
        .where(outbox.c.published_at <= published_before, outbox.c.id > after_id)
        .order_by(outbox.c.id)
        .limit(limit)
    )
    return [_to_row(r) for r in connection.execute(query)]


def oldest_due(
    connection: sa.Connection, actor: Actor, queues: Sequence[str], *, now: float, limit: int
) -> list[tuple[str, str]]:
    """(queue, id) of an actor's orders that are due and unclaimed, oldest first."""
    query = (
        sa.select(outbox.c.queue, outbox.c.id)
        .where(outbox.c.actor == actor.value, outbox.c.queue.in_(queues), outbox.c.due_at <= now)
        .order_by(outbox.c.id)
        .limit(limit)
    )
    return [(queue, message_id) for queue, message_id in connection.execute(query)]


def mark_published(connection: sa.Connection, ids: Sequence[str], now: float) -> None:
    """Idempotent; a row that a fast worker already claimed is gone, which is well."""
    if ids:
        connection.execute(
            sa.update(outbox)
            .where(outbox.c.id.in_(ids))
            .values(published_at=now, publishes=outbox.c.publishes + 1)
        )


def get(connection: sa.Connection, message_id: str) -> sa.Row[Any] | None:
    return connection.execute(sa.select(outbox).where(outbox.c.id == message_id)).first()


def of_job(connection: sa.Connection, job_id: str) -> list[sa.Row[Any]]:
    """All rows of one job, oldest first."""
    query = sa.select(outbox).where(outbox.c.job_id == job_id).order_by(outbox.c.id)
    return list(connection.execute(query))


def remove(connection: sa.Connection, message_id: str) -> None:
    connection.execute(sa.delete(outbox).where(outbox.c.id == message_id))


def remove_of_job(connection: sa.Connection, job_id: str) -> None:
    """Take back what asks for runs of the job; a callback that is on its way stays."""
    remove_of_jobs(connection, [job_id])


def remove_of_jobs(connection: sa.Connection, job_ids: Sequence[str]) -> None:
    """`remove_of_job` for many."""
    connection.execute(
        sa.delete(outbox).where(outbox.c.job_id.in_(job_ids), outbox.c.actor.in_(RUN_ACTORS))
    )


def lag(connection: sa.Connection, now: float) -> tuple[int, float]:
    """Rows that are due and unpublished, and the seconds that the oldest is late."""
    query = sa.select(sa.func.count(), sa.func.min(outbox.c.due_at)).where(
        outbox.c.published_at.is_(None), outbox.c.due_at <= now
    )
    count, oldest = connection.execute(query).one()
    return count, max(0.0, now - oldest) if oldest is not None else 0.0
