"""Figures for people who look at the system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import counters, job_counts, steering
from sluice_core.adapters.db import outbox as outbox_store
from sluice_core.adapters.db.schema import attempts, dead_letters, outbox
from sluice_core.domain.lanes import Lane

#: Seconds in which an outbox row is published by its writer, and then published again and marked by
#: the relay. Until then it may well be in Redis unmarked.
HANDOVER = 4.0


#: Seconds after which a published message must have arrived in Redis.
ARRIVAL = 5.0


@dataclass(frozen=True, slots=True)
class QueueRows:
    """What the database knows of one queue."""

    #: Orders that are due and, as far as is known here, not in Redis.
    due: int = 0
    #: Seconds that the oldest of them is late; None when there is none.
    due_age: float | None = None
    #: Orders for a later time.
    delayed: int = 0
    #: Open runs of its messages.
    running: int = 0
    #: Dead letters.
    dead: int = 0
    #: Nothing is to be fetched from it.
    paused: bool = False


NO_ROWS = QueueRows()


def rows_by_queue(
    connection: sa.Connection, *, not_in_redis: Sequence[str], now: float
) -> dict[str, QueueRows]:
    """Queues of which the database knows anything.

    An order that was due only just now is on its way by its own writer, and counted there.

    Args:
        connection: of the caller's transaction.
        not_in_redis: queues that were empty in Redis just before: what was published to them and
            not claimed is gone from there, so it counts as due.
        now: Unix seconds.

    """
    found: dict[str, QueueRows] = {}

    def add(queue: str, **values: Any) -> None:
        found[queue] = replace(found.get(queue, NO_ROWS), **values)

    for queue, due, oldest, delayed in connection.execute(_unpublished(now)):
        add(queue, due=due, due_age=_age(oldest, now), delayed=delayed)
    for queue, gone, oldest in connection.execute(_gone(not_in_redis, now)):
        before = found.get(queue, NO_ROWS)
        age = max(before.due_age or 0.0, _age(oldest, now) or 0.0)
        add(queue, due=before.due + gone, due_age=age)
    for queue, running in connection.execute(_count(attempts, attempts.c.ended_at.is_(None))):
        add(queue, running=running)
    for queue, dead in connection.execute(_count(dead_letters)):
        # A message that nobody could read is known by its actor alone.
        name = queue if "." in queue else f"{queue}.{Lane.DEFAULT.value}"
        add(name, dead=dead + found.get(name, NO_ROWS).dead)
    for queue in steering.paused(connection):
        add(queue, paused=True)
    return found


def _unpublished(now: float) -> sa.Select[Any]:
    due = outbox.c.due_at <= now - HANDOVER
    return (
        sa.select(
            outbox.c.queue,
            sa.func.sum(sa.case((due, 1), else_=0)),
            sa.func.min(sa.case((due, outbox.c.due_at))),
            sa.func.sum(sa.case((outbox.c.due_at > now, 1), else_=0)),
        )
        .where(outbox.c.published_at.is_(None))
        .group_by(outbox.c.queue)
    )


def oldest_unpublished(
    connection: sa.Connection, *, limit: int, now: float
) -> list[tuple[str, str]]:
    """(queue, id) of orders that are due and not marked as published, oldest first."""
    query = (
        sa.select(outbox.c.queue, outbox.c.id)
        .where(outbox.c.published_at.is_(None), outbox.c.due_at <= now - HANDOVER)
        .order_by(outbox.c.due_at)
        .limit(limit)
    )
    return [(queue, message_id) for queue, message_id in connection.execute(query)]


def _gone(queues: Sequence[str], now: float) -> sa.Select[Any]:
    return (
        sa.select(outbox.c.queue, sa.func.count(), sa.func.min(outbox.c.due_at))
        .where(outbox.c.published_at <= now - ARRIVAL, outbox.c.queue.in_(queues))
        .group_by(outbox.c.queue)
    )


def _count(table: sa.Table, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(table.c.queue, sa.func.count()).where(*where).group_by(table.c.queue)


def _age(oldest: float | None, now: float) -> float | None:
    return None if oldest is None else max(0.0, now - oldest)


def summary(connection: sa.Connection, *, now: float) -> dict[str, Any]:
    """Jobs by state, what the outbox holds back, and dead letters."""
    pending, lag = outbox_store.lag(connection, now)
    letters = connection.execute(sa.select(sa.func.count()).select_from(dead_letters)).scalar_one()
    return {
        "jobs": {status.value: n for status, n in job_counts.read(connection).items()},
        "outbox_pending": pending,
        "outbox_lag_seconds": lag,
        "dead_letters": letters,
        "dead_letters_dropped": counters.read(connection, counters.DEAD_LETTERS_DROPPED),
    }
