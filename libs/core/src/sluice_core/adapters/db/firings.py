"""Firings: what became of each planned time of a schedule, written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import firings, jobs, schedules
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.domain.schedule import Firing, FiringOutcome, Schedule
from sluice_core.domain.states import ACTIVE

#: Firings kept of each schedule; the newest ones.
KEPT = 100


def record(
    connection: sa.Connection,
    schedule: Schedule,
    planned_at: float,
    *,
    fence: int,
    now: float,
    outcome: FiringOutcome | None,
    message: str | None = None,
) -> bool:
    """Write what becomes of a planned time, once; False when that was written before."""
    insert = (
        insert_or_ignore(connection, firings)
        .values(
            schedule_id=schedule.id,
            planned_at=planned_at,
            fired_at=now,
            ended_at=None if outcome is None else now,
            outcome=outcome.value if outcome else None,
            message=message,
            fence=fence,
        )
        .returning(firings.c.planned_at)
    )
    return connection.execute(insert).first() is not None


def name_job(connection: sa.Connection, schedule_id: str, planned_at: float, job_id: str) -> None:
    """The firing made this job."""
    connection.execute(
        sa.update(firings).where(*_is(schedule_id, planned_at)).values(job_id=job_id)
    )


def end(
    connection: sa.Connection,
    schedule_id: str,
    planned_at: float,
    *,
    outcome: FiringOutcome,
    message: str,
    now: float,
) -> None:
    """A built-in task is over; nothing when the firing was given up meanwhile."""
    connection.execute(
        sa.update(firings)
        .where(*_is(schedule_id, planned_at), firings.c.ended_at.is_(None))
        .values(ended_at=now, outcome=outcome.value, message=message)
    )


def give_up_older(connection: sa.Connection, *, fence: int, now: float) -> int:
    """Close what earlier leaders left running; returns how many."""
    return connection.execute(
        sa.update(firings)
        .where(firings.c.ended_at.is_(None), firings.c.fence < fence)
        .values(ended_at=now, outcome=FiringOutcome.LOST.value, message="its scheduler was lost")
    ).rowcount


def is_running(connection: sa.Connection, schedule_id: str) -> bool:
    """Whether a task of the schedule runs, or the job of an earlier firing has not ended."""
    unended = sa.select(firings.c.planned_at).where(
        firings.c.schedule_id == schedule_id, firings.c.ended_at.is_(None)
    )
    if connection.execute(unended.limit(1)).first() is not None:
        return True
    active = sa.select(jobs.c.id).where(
        jobs.c.id.in_(sa.select(firings.c.job_id).where(firings.c.schedule_id == schedule_id)),
        jobs.c.status.in_([s.value for s in ACTIVE]),
        jobs.c.deleted_at.is_(None),
    )
    return connection.execute(active.limit(1)).first() is not None


def newest(connection: sa.Connection, schedule_ids: Sequence[str]) -> dict[str, Firing]:
    """The newest firing of each schedule."""
    newest = (
        sa.select(firings.c.schedule_id, sa.func.max(firings.c.planned_at).label("at"))
        .where(firings.c.schedule_id.in_(schedule_ids))
        .group_by(firings.c.schedule_id)
        .subquery()
    )
    query = sa.select(firings).join(
        newest,
        sa.and_(firings.c.schedule_id == newest.c.schedule_id, firings.c.planned_at == newest.c.at),
    )
    return {r.schedule_id: _to_firing(r) for r in connection.execute(query)}


def list_of(connection: sa.Connection, schedule_id: str, *, limit: int) -> list[Firing]:
    """Newest first."""
    query = (
        sa.select(firings)
        .where(firings.c.schedule_id == schedule_id)
        .order_by(firings.c.planned_at.desc())
        .limit(limit)
    )
    return [_to_firing(r) for r in connection.execute(query)]


def purge(connection: sa.Connection) -> int:
    """Forget all but the newest of each schedule; returns how many."""
    gone = 0
    for schedule_id in connection.execute(sa.select(schedules.c.id)).scalars().all():
        oldest_kept = connection.execute(
            sa.select(firings.c.planned_at)
            .where(firings.c.schedule_id == schedule_id)
            .order_by(firings.c.planned_at.desc())
            .offset(KEPT - 1)
            .limit(1)
        ).scalar()
        if oldest_kept is not None:
            gone += connection.execute(
                sa.delete(firings).where(
                    firings.c.schedule_id == schedule_id,
                    firings.c.planned_at < oldest_kept,
                    firings.c.ended_at.is_not(None),
                )
            ).rowcount
    return gone


def _to_firing(row: sa.Row[Any]) -> Firing:
    return Firing(
        schedule_id=row.schedule_id,
        planned_at=row.planned_at,
        fired_at=row.fired_at,
        ended_at=row.ended_at,
        outcome=FiringOutcome(row.outcome) if row.outcome else None,
        job_id=row.job_id,
        message=row.message,
    )


def _is(schedule_id: str, planned_at: float) -> tuple[sa.ColumnElement[bool], ...]:
    return (firings.c.schedule_id == schedule_id, firings.c.planned_at == planned_at)
