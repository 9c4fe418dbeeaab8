"""Tables that are only appended to, until somebody adds their rows up and takes them away.

A shared counter would make all writers wait for each other. Each of these has an `id` that rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa


def has_any(connection: sa.Connection, table: sa.Table) -> bool:
    """Whether there is anything to add up; takes no write lock."""
    return connection.execute(sa.select(table.c.id).limit(1)).first() is not None


def take_oldest(connection: sa.Connection, table: sa.Table, *, limit: int) -> Sequence[sa.Row[Any]]:
    """Take rows away, in the transaction that adds them up; others get other rows meanwhile."""
    oldest = (
        sa.select(table.c.id).order_by(table.c.id).limit(limit).with_for_update(skip_locked=True)
    )
    taken = sa.delete(table).where(table.c.id.in_(oldest.scalar_subquery())).returning(table)
    return connection.execute(taken).all()
