"""What could not be done and waits for a person; capped, oldest out first and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import counters
from sluice_core.adapters.db.schema import dead_letters
from sluice_core.adapters.ids import new_id

#: Rows kept.
CAP = 10_000
MAX_REASON = 500
MAX_PAYLOAD = 2_000


@dataclass(frozen=True, slots=True)
class Letter:
    """One row; times are Unix seconds."""

    id: str
    #: Queue or stage that it came from.
    queue: str
    #: None when the message could not be read.
    job_id: str | None
    reason: str
    #: The message as it came, cut; empty when the job's own row says all.
    payload: str
    created_at: float


def add(
    connection: sa.Connection,
    *,
    queue: str,
    job_id: str | None,
    reason: str,
    payload: str,
    now: float,
) -> str:
    """Keep a letter; returns its id. The oldest beyond `CAP` go, and are counted."""
    letter_id = new_id()
    connection.execute(
        sa.insert(dead_letters).values(
            id=letter_id,
            queue=queue,
            job_id=job_id,
            reason=reason[:MAX_REASON],
            payload=payload[:MAX_PAYLOAD],
            created_at=now,
        )
    )
    trim(connection)
    return letter_id


def trim(connection: sa.Connection, *, cap: int = CAP) -> int:
    """Drop the oldest beyond the cap; returns how many."""
    newest_over = connection.execute(
        sa.select(dead_letters.c.id).order_by(dead_letters.c.id.desc()).offset(cap).limit(1)
    ).scalar()
    if newest_over is None:
        return 0
    dropped = connection.execute(
        sa.delete(dead_letters).where(dead_letters.c.id <= newest_over)
    ).rowcount
    counters.add(connection, counters.DEAD_LETTERS_DROPPED, dropped)
    return dropped


def get(connection: sa.Connection, letter_id: str) -> Letter | None:
    row = connection.execute(sa.select(dead_letters).where(dead_letters.c.id == letter_id)).first()
    return _to_letter(row) if row else None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters; None means any."""

    #: A queue, or a stage for all of its queues.
    queue: str | None = None
    job_id: str | None = None
    #: Start of the reason.
    reason: str | None = None
    ids: Sequence[str] | None = None


def list_page(
    connection: sa.Connection, where: Filter, *, before_id: str | None, limit: int
) -> list[Letter]:
    """Newest first, keyset pages: `before_id` is the last id of the page before."""
    query = _matching(where, before_id).order_by(dead_letters.c.id.desc()).limit(limit)
    return [_to_letter(r) for r in connection.execute(query)]


def ids_before(
    connection: sa.Connection, where: Filter, *, before_id: str | None, limit: int
) -> list[str]:
    """Ids of letters that fit, newest first, in pages."""
    query = _matching(where, before_id).with_only_columns(dead_letters.c.id)
    return list(connection.execute(query.order_by(dead_letters.c.id.desc()).limit(limit)).scalars())


def count(connection: sa.Connection, where: Filter) -> int:
    """How many fit."""
    found: int = connection.execute(
        sa.select(sa.func.count()).select_from(_matching(where, None).subquery())
    ).scalar_one()
    return found


def drop(connection: sa.Connection, letter_id: str) -> bool:
    """Remove a letter; False when there is none."""
    gone = connection.execute(sa.delete(dead_letters).where(dead_letters.c.id == letter_id))
    return gone.rowcount == 1


def drop_many(connection: sa.Connection, letter_ids: Sequence[str]) -> int:
    """Remove letters; returns how many were there."""
    return connection.execute(
        sa.delete(dead_letters).where(dead_letters.c.id.in_(letter_ids))
    ).rowcount


def remove_of_jobs(connection: sa.Connection, job_ids: Sequence[str]) -> None:
    """The jobs run again, or are gone: nobody needs to look at their letters any more."""
    connection.execute(sa.delete(dead_letters).where(dead_letters.c.job_id.in_(job_ids)))


def _matching(where: Filter, before_id: str | None) -> sa.Select[Any]:
    query = sa.select(dead_letters)
    if before_id is not None:
        query = query.where(dead_letters.c.id < before_id)
    if where.queue is not None:
        of_stage = dead_letters.c.queue.startswith(f"{where.queue}.", autoescape=True)
        query = query.where(sa.or_(dead_letters.c.queue == where.queue, of_stage))
    if where.job_id is not None:
        query = query.where(dead_letters.c.job_id == where.job_id)
    if where.reason is not None:
        query = query.where(dead_letters.c.reason.startswith(where.reason, autoescape=True))
    if where.ids is not None:
        query = query.where(dead_letters.c.id.in_(where.ids))
    return query


def _to_letter(row: sa.Row[Any]) -> Letter:
    return Letter(row.id, row.queue, row.job_id, row.reason, row.payload, row.created_at)
