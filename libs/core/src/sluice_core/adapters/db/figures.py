"""Figures for people who look at the system."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import counters
from sluice_core.adapters.db import outbox as outbox_store
from sluice_core.adapters.db.schema import dead_letters, jobs, outbox
from sluice_core.domain.states import Status

#: Seconds in which the writer of an outbox row publishes it by itself.
HANDOVER = 2.0


def outbox_by_queue(connection: sa.Connection, *, now: float) -> dict[str, tuple[int, int]]:
    """Queue -> (due, delayed): rows that the broker does not have yet.

    A row that was due only just now is on its way by its own writer, and counted there.
    """
    is_due = sa.case((outbox.c.due_at <= now - HANDOVER, 1), else_=0)
    is_delayed = sa.case((outbox.c.due_at > now, 1), else_=0)
    query = (
        sa.select(outbox.c.queue, sa.func.sum(is_due), sa.func.sum(is_delayed))
        .where(outbox.c.published_at.is_(None))
        .group_by(outbox.c.queue)
    )
    return {queue: (due, delayed) for queue, due, delayed in connection.execute(query)}


def summary(connection: sa.Connection, *, now: float) -> dict[str, Any]:
    """Jobs by state, what the outbox holds back, and dead letters."""
    query = (
        sa.select(jobs.c.status, sa.func.count())
        .where(jobs.c.deleted_at.is_(None))
        .group_by(jobs.c.status)
    )
    by_status = dict.fromkeys((s.value for s in Status), 0)
    for status, count in connection.execute(query):
        by_status[status] = count
    pending, lag = outbox_store.lag(connection, now)
    letters = connection.execute(sa.select(sa.func.count()).select_from(dead_letters)).scalar_one()
    return {
        "jobs": by_status,
        "outbox_pending": pending,
        "outbox_lag_seconds": lag,
        "dead_letters": letters,
        "dead_letters_dropped": counters.read(connection, counters.DEAD_LETTERS_DROPPED),
    }
