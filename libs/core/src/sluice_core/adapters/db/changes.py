"""What changed, in few bytes: event streams compare themselves with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import jobs


@dataclass(frozen=True, slots=True)
class Change:
    """A job's present version; deleted jobs count too."""

    job_id: str
    version: int
    updated_at: float
    api_key_id: str | None


_COLUMNS = (jobs.c.id, jobs.c.version, jobs.c.updated_at, jobs.c.api_key_id)


def since(
    connection: sa.Connection, moment: float, *, after_id: str = "", limit: int
) -> list[Change]:
    """Jobs written at or after a moment, oldest change first.

    Args:
        connection: to read from.
        moment: Unix seconds; of the last row of the page before.
        after_id: id of that row, so that many rows of one moment end too.
        limit: rows of a page.

    """
    later = sa.or_(
        jobs.c.updated_at > moment,
        sa.and_(jobs.c.updated_at == moment, jobs.c.id > after_id),
    )
    # The first condition alone is what an index can serve.
    query = (
        sa.select(*_COLUMNS)
        .where(jobs.c.updated_at >= moment, later)
        .order_by(jobs.c.updated_at, jobs.c.id)
        .limit(limit)
    )
    return [_to_change(r) for r in connection.execute(query)]


def of_jobs(connection: sa.Connection, job_ids: Sequence[str]) -> list[Change]:
    """The same for named jobs, which needs no clock to agree with another."""
    query = sa.select(*_COLUMNS).where(jobs.c.id.in_(job_ids))
    return [_to_change(r) for r in connection.execute(query)]


def _to_change(row: Any) -> Change:
    return Change(row.id, row.version, row.updated_at, row.api_key_id)
