"""Schedules: what is to happen again and again. When one fires next is computed by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sluice_core.adapters.db.schema import firings, jobs, schedules, subscription_entries
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import Request
from sluice_core.domain.lanes import Lane
from sluice_core.domain.schedule import Kind, Missed, Schedule, Trigger
from sluice_core.domain.states import ACTIVE

#: Most schedules and subscriptions in all.
CAP = 1_000


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to insert."""

    name: str
    kind: Kind
    trigger: Trigger
    next_at: float | None
    missed: Missed = Missed.SKIP
    request: Request | None = None
    backfill: bool = False
    enabled: bool = True
    api_key_id: str | None = None


def add(connection: sa.Connection, new: NewSchedule, *, now: float) -> Schedule | None:
    """Write a schedule; None when its name is taken."""
    insert = (
        insert_or_ignore(connection, schedules)
        .values(
            id=new_id(),
            name=new.name,
            kind=new.kind.value,
            enabled=new.enabled,
            **trigger_columns(new.trigger),
            missed=new.missed.value,
            request=request_to_json(new.request) if new.request else None,
            backfill=new.backfill,
            api_key_id=new.api_key_id,
            created_at=now,
            updated_at=now,
            next_at=new.next_at,
        )
        .returning(schedules)
    )
    row = connection.execute(insert).first()
    return _to_schedule(row) if row else None


def count(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(schedules)).scalar_one()


def get(connection: sa.Connection, schedule_id: str, *, lock: bool = False) -> Schedule | None:
    query = sa.select(schedules).where(schedules.c.id == schedule_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return _to_schedule(row) if row else None


def list_all(
    connection: sa.Connection, *, kinds: Sequence[Kind], api_key_id: str | None = None
) -> list[Schedule]:
    """By name, at most `CAP` and what is built in; `api_key_id` None is everybody's."""
    query = sa.select(schedules).where(schedules.c.kind.in_([k.value for k in kinds]))
    if api_key_id is not None:
        query = query.where(schedules.c.api_key_id == api_key_id)
    return [_to_schedule(r) for r in connection.execute(query.order_by(schedules.c.name))]


def change(
    connection: sa.Connection, schedule_id: str, values: Mapping[str, Any], *, now: float
) -> Schedule | None:
    """Write columns; None when the schedule is gone or its new name is taken."""
    update = (
        sa.update(schedules)
        .where(schedules.c.id == schedule_id)
        .values(updated_at=now, **values)
        .returning(schedules)
    )
    try:
        # The caller's transaction goes on, so it must not be the one that fails.
        with connection.begin_nested():
            row = connection.execute(update).first()
    except IntegrityError:
        return None
    return _to_schedule(row) if row else None


def remove(connection: sa.Connection, schedule_id: str) -> bool:
    """Delete a schedule and all that is remembered of it; its jobs stay."""
    for table in (firings, subscription_entries):
        connection.execute(sa.delete(table).where(table.c.schedule_id == schedule_id))
    gone = connection.execute(sa.delete(schedules).where(schedules.c.id == schedule_id))
    return gone.rowcount == 1


def due_ids(connection: sa.Connection, *, now: float, limit: int) -> list[str]:
    """Schedules whose time has come, the longest waiting first."""
    query = (
        sa.select(schedules.c.id)
        .where(schedules.c.next_at <= now, schedules.c.enabled.is_(True))
        .order_by(schedules.c.next_at)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def checks_under_way(connection: sa.Connection, schedule_id: str) -> list[str]:
    """Jobs that read the subscription's list now."""
    query = sa.select(jobs.c.id).where(
        jobs.c.schedule_id == schedule_id,
        jobs.c.status.in_([s.value for s in ACTIVE]),
        jobs.c.deleted_at.is_(None),
        jobs.c.expansion_done.is_not(True),
    )
    return list(connection.execute(query).scalars())


def trigger_columns(trigger: Trigger) -> dict[str, Any]:
    return asdict(trigger)


def request_to_json(request: Request) -> dict[str, Any]:
    """A request as the `request` column holds it."""
    return asdict(request)


def request_from_json(stored: Mapping[str, Any]) -> Request:
    values = dict(stored)
    return Request(
        **{**values, "lane": Lane(values["lane"]), "subtitles": tuple(values["subtitles"])}
    )


def _to_schedule(row: sa.Row[Any]) -> Schedule:
    r = row._mapping  # noqa: SLF001  # SQLAlchemy's documented way to read by name
    return Schedule(
        id=r["id"],
        name=r["name"],
        kind=Kind(r["kind"]),
        enabled=r["enabled"],
        trigger=Trigger(r["cron"], r["timezone"], r["every"], r["anchor"]),
        missed=Missed(r["missed"]),
        request=request_from_json(r["request"]) if r["request"] else None,
        backfill=r["backfill"],
        baseline_done=r["baseline_done"],
        api_key_id=r["api_key_id"],
        created_at=r["created_at"],
        updated_at=r["updated_at"],
        next_at=r["next_at"],
    )
