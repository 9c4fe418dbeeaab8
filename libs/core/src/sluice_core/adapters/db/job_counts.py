"""How many jobs there are by state, without counting them.

Triggers of the first migration append one row for each change; a reader adds them up, and the
scheduler folds them into one row for each state, so that there is never much to add.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import notes
from sluice_core.adapters.db.schema import job_changes, job_counts
from sluice_core.adapters.db.upsert import raise_by
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


def _active() -> sa.Select[Any]:
    counted, changed = (
        sa.select(sa.func.coalesce(sa.func.sum(number), 0))
        .where(sa.or_(*(state == status.value for status in sorted(ACTIVE))))
        .scalar_subquery()
        for state, number in (
            (job_counts.c.status, job_counts.c.count),
            (job_changes.c.status, job_changes.c.delta),
        )
    )
    return sa.select(counted + changed)


#: Made once: making it takes as long as asking.
_SUMS = _sums()
#: Text, since each submit asks it: to look it up takes the library longer than to send it.
_ACTIVE = str(_active().compile(compile_kwargs={"literal_binds": True}))


def read(connection: sa.Connection) -> dict[Status, int]:
    """Every state with its number of jobs, deleted ones not counted, at one moment."""
    found = {status: int(count) for status, count in connection.execute(_SUMS)}
    return {status: found.get(status.value, 0) for status in Status}


def active(connection: sa.Connection) -> int:
    """Jobs that have not ended, children included."""
    return int(connection.exec_driver_sql(_ACTIVE).scalar_one())


def has_changes(connection: sa.Connection) -> bool:
    """Whether `fold` has anything to do; takes no write lock."""
    return notes.has_any(connection, job_changes)


def fold(connection: sa.Connection, *, limit: int = BATCH) -> int:
    """Add the oldest changes up; returns how many. Harmless when several do it at once."""
    taken = notes.take_oldest(connection, job_changes, limit=limit)
    sums: Counter[str] = Counter()
    for row in taken:
        sums[row.status] += row.delta
    amounts = [{"status": status, "count": delta} for status, delta in sums.items()]
    raise_by(connection, job_counts.c.count, amounts)
    return len(taken)
