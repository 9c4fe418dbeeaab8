"""How many jobs there are by state, without counting them.

Triggers of the first migration append one row for each change; a reader adds them up, and the
scheduler folds them into one row for each state, so that there is never much to add.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import job_changes, job_counts
from sluice_core.adapters.db.upsert import insert_into
from sluice_core.domain.states import ACTIVE, Status

#: Rows added up in one transaction.
BATCH = 10_000


def _sums() -> sa.Select[Any]:
    # One statement sees one state of both tables.
    both = sa.union_all(
        sa.select(job_counts.c.status, job_counts.c.count.label("n")),
        sa.select(job_changes.c.status, sa.func.sum(job_changes.c.delta)).group_by(
            job_changes.c.status
        ),
    ).subquery()
    return sa.select(both.c.status, sa.func.sum(both.c.n)).group_by(both.c.status)


#: Made once: each submit asks it, and making it takes as long as asking.
_SUMS = _sums()


def read(connection: sa.Connection) -> dict[Status, int]:
    """Every state with its number of jobs, deleted ones not counted, at one moment."""
    found = {status: int(count) for status, count in connection.execute(_SUMS)}
    return {status: found.get(status.value, 0) for status in Status}


def active(connection: sa.Connection) -> int:
    """Jobs that have not ended, children included."""
    counts = read(connection)
    return sum(counts[status] for status in ACTIVE)


def has_changes(connection: sa.Connection) -> bool:
    """Whether `fold` has anything to do; takes no write lock."""
    return connection.execute(sa.select(job_changes.c.id).limit(1)).first() is not None


def fold(connection: sa.Connection, *, limit: int = BATCH) -> int:
    """Add the oldest changes up; returns how many. Harmless when several do it at once."""
    oldest = (
        sa.select(job_changes.c.id)
        .order_by(job_changes.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    gone = connection.execute(
        sa.delete(job_changes)
        .where(job_changes.c.id.in_(oldest.scalar_subquery()))
        .returning(job_changes.c.status, job_changes.c.delta)
    ).all()
    sums: dict[str, int] = {}
    for status, delta in gone:
        sums[status] = sums.get(status, 0) + delta
    # In one order, so that two who fold never wait for each other in a ring.
    for status, delta in sorted(sums.items()):
        insert = insert_into(connection, job_counts).values(status=status, count=delta)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[job_counts.c.status],
                set_={"count": job_counts.c.count + insert.excluded.count},
            )
        )
    return len(gone)
