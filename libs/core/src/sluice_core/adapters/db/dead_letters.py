"""What could not be done and waits for a person; capped, oldest out first."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import dead_letters
from sluice_core.adapters.ids import new_id

#: Rows kept.
CAP = 10_000
MAX_REASON = 500
MAX_PAYLOAD = 2_000


def add(
    connection: sa.Connection,
    *,
    queue: str,
    job_id: str | None,
    reason: str,
    payload: str,
    now: float,
) -> str:
    """Keep a letter; returns its id."""
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
    return letter_id


def trim(connection: sa.Connection) -> int:
    """Drop the oldest beyond `CAP`; returns how many."""
    oldest_kept = connection.execute(
        sa.select(dead_letters.c.id).order_by(dead_letters.c.id.desc()).offset(CAP - 1).limit(1)
    ).scalar()
    if oldest_kept is None:
        return 0
    return connection.execute(
        sa.delete(dead_letters).where(dead_letters.c.id < oldest_kept)
    ).rowcount


def list_page(connection: sa.Connection, *, before_id: str | None, limit: int) -> list[sa.Row[Any]]:
    """Newest first."""
    query = sa.select(dead_letters).order_by(dead_letters.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(dead_letters.c.id < before_id)
    return list(connection.execute(query))
