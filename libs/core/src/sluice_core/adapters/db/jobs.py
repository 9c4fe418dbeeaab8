"""Jobs as submitters hand them in and look them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters import tracing
from sluice_core.adapters.db import outbox, search
from sluice_core.adapters.db.rows import options_of, to_job
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import Job, Request
from sluice_core.domain.lanes import Actor, queue_name
from sluice_core.domain.states import ACTIVE, Status, WaitingFor

_VISIBLE = jobs.c.deleted_at.is_(None)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to insert."""

    request: Request
    dedup_key: str | None = None
    api_key_id: str | None = None
    parent_id: str | None = None
    schedule_id: str | None = None
    entry_key: str | None = None
    entry: dict[str, Any] | None = None
    traceparent: str | None = None


def insert_many(
    connection: sa.Connection, new: Sequence[NewJob], *, now: float
) -> list[tuple[Job | None, outbox.OutboxRow | None]]:
    """Write jobs and the messages that start them; in order of `new`.

    An entry is (None, None) where a unique index (request in progress, or entry of the same
    parent) already holds such a job: the caller looks the other one up.
    """
    if not new:
        return []
    values = [_row_of(job, now) for job in new]
    insert = insert_or_ignore(connection, jobs).returning(jobs)
    # Two writers that meet the unique keys in different orders would wait for each other.
    in_order = sorted(values, key=lambda v: (v["dedup_key"] or "", v["entry_key"] or ""))
    rows = {r.id: r for r in connection.execute(insert, in_order)}
    result: list[tuple[Job | None, outbox.OutboxRow | None]] = []
    orders: list[outbox.OutboxRow] = []
    entries: list[dict[str, Any]] = []
    for value in values:
        row = rows.get(value["id"])
        if row is None:
            result.append((None, None))
            continue
        job = to_job(row)
        order = _first_order(job, now)
        orders.append(order)
        entries.append(
            search.entry_of(job.id, api_key_id=job.api_key_id, url=job.request.url, title=job.title)
        )
        result.append((job, order))
    search.add_many(connection, entries)
    outbox.add_many(connection, orders, now)
    return result


def _row_of(job: NewJob, now: float) -> dict[str, Any]:
    request = job.request
    waits = request.not_before is not None and request.not_before > now
    return {
        "id": new_id(),
        "url": request.url,
        "preset": request.preset,
        "lane": request.lane.value,
        "options": options_of(request),
        "dedup_key": job.dedup_key,
        "api_key_id": job.api_key_id,
        "parent_id": job.parent_id,
        "schedule_id": job.schedule_id,
        "entry_key": job.entry_key,
        "entry": job.entry,
        "title": (job.entry or {}).get("title"),
        "status": Status.PENDING.value,
        "stage": Actor.PARSE.value,
        "waiting_for": (WaitingFor.TIME if waits else WaitingFor.WORKER).value,
        "traceparent": job.traceparent or tracing.header(),
        "wanted_at": request.not_before if waits else None,
        "created_at": now,
        "updated_at": now,
    }


def _first_order(job: Job, now: float) -> outbox.OutboxRow:
    return outbox.OutboxRow(
        id=new_id(),
        job_id=job.id,
        actor=job.stage,
        queue=queue_name(job.stage, job.request.lane),
        epoch=job.epoch,
        due_at=max(now, job.request.not_before or now),
        traceparent=job.traceparent,
        owner=job.owner,
    )


def get(connection: sa.Connection, job_id: str) -> Job | None:
    row = connection.execute(sa.select(jobs).where(jobs.c.id == job_id, _VISIBLE)).first()
    return to_job(row) if row else None


def get_many(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, Job]:
    query = sa.select(jobs).where(jobs.c.id.in_(job_ids), _VISIBLE)
    return {r.id: to_job(r) for r in connection.execute(query)}


def by_dedup_key(connection: sa.Connection, key: str) -> Job | None:
    row = connection.execute(sa.select(jobs).where(jobs.c.dedup_key == key, _VISIBLE)).first()
    return to_job(row) if row else None


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list shows; None means any."""

    status: Sequence[Status] | None = None
    #: Start of title, link or id.
    q: str | None = None
    parent_id: str | None = None
    preset: str | None = None
    ids: Sequence[str] | None = None
    error_code: str | None = None
    #: Unix seconds: changed since.
    since: float | None = None
    api_key_id: str | None = None
    #: Only jobs that are not children.
    roots_only: bool = False


def list_page(
    connection: sa.Connection, where: Filter, *, before_id: str | None, limit: int
) -> list[Job]:
    """Newest first, keyset pages: `before_id` is the last id of the page before."""
    ids = _some_ids(connection, where, before_id, limit)
    query = sa.select(jobs).where(jobs.c.id.in_(ids)).order_by(jobs.c.id.desc()).limit(limit)
    return [to_job(r) for r in connection.execute(query)]


def _some_ids(
    connection: sa.Connection, where: Filter, before_id: str | None, limit: int
) -> sa.Select[Any]:
    """Ids among which are the `limit` newest that fit.

    Each part is served by one index in its order; a database that is given all at once reads far
    too many rows where few fit.
    """
    if where.q:
        conditions = _conditions(replace(where, q=None, api_key_id=None))
        parts = search.matching(
            connection,
            where.q,
            where=[_VISIBLE, *conditions],
            api_key_id=where.api_key_id,
            before_id=before_id,
            limit=limit,
        )
    else:
        extra = []
        if where.roots_only and connection.dialect.name == "sqlite":
            # As an expression: else all roots would be read by their index and sorted.
            where = replace(where, roots_only=False)
            extra = [sa.func.ifnull(jobs.c.parent_id, "") == ""]
        parts = [
            _newest([*_conditions(part), *extra], before_id, limit) for part in _by_state(where)
        ]
    selected = [sa.select(part.subquery().c.id) for part in parts]
    return sa.select(sa.union_all(*selected).subquery().c.id)


def _by_state(where: Filter) -> list[Filter]:
    """The filter, one for each state where an index begins with it."""
    if where.parent_id is not None or where.ids is not None:
        return [where]
    if where.status is None and where.api_key_id is None:
        return [where]
    return [replace(where, status=(status,)) for status in where.status or Status]


def _newest(
    conditions: list[sa.ColumnElement[bool]], before_id: str | None, limit: int
) -> sa.Select[Any]:
    query = sa.select(jobs.c.id).where(_VISIBLE, *conditions)
    if before_id is not None:
        query = query.where(jobs.c.id < before_id)
    return query.order_by(jobs.c.id.desc()).limit(limit)


def ids_after(connection: sa.Connection, where: Filter, *, after_id: str, limit: int) -> list[str]:
    """Ids of jobs that fit, oldest first, in pages by id."""
    query = sa.select(jobs.c.id).where(_VISIBLE, *_conditions(where, connection))
    query = query.where(jobs.c.id > after_id).order_by(jobs.c.id).limit(limit)
    return list(connection.execute(query).scalars())


def count(connection: sa.Connection, where: Filter, *, cap: int) -> int:
    """How many fit; of more than `cap`, `cap`."""
    some = sa.select(jobs.c.id).where(_VISIBLE, *_conditions(where, connection)).limit(cap)
    counted = sa.select(sa.func.count()).select_from(some.subquery())
    found: int = connection.execute(counted).scalar_one()
    return found


def active_of_key(connection: sa.Connection, api_key_id: str, *, cap: int) -> int:
    """Jobs of a key that have not ended, children included; of more than `cap`, `cap`."""
    return count(connection, Filter(status=tuple(ACTIVE), api_key_id=api_key_id), cap=cap)


def _conditions(
    where: Filter, connection: sa.Connection | None = None
) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if where.status:
        found.append(jobs.c.status.in_([s.value for s in where.status]))
    if where.parent_id is not None:
        found.append(jobs.c.parent_id == where.parent_id)
    if where.roots_only:
        found.append(jobs.c.parent_id.is_(None))
    if where.preset is not None:
        found.append(jobs.c.preset == where.preset)
    if where.ids is not None:
        found.append(jobs.c.id.in_(where.ids))
    if where.error_code is not None:
        found.append(jobs.c.error_code == where.error_code)
    if where.since is not None:
        found.append(jobs.c.updated_at >= where.since)
    if where.api_key_id is not None:
        found.append(jobs.c.api_key_id == where.api_key_id)
    if where.q and connection is not None:
        found.append(jobs.c.id.in_(search.all_matching(connection, where.q)))
    return found


def attempts_of(connection: sa.Connection, job_id: str) -> list[sa.Row[Any]]:
    """Every run of a job, oldest first; columns as in the schema."""
    query = sa.select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.id)
    return list(connection.execute(query))


def extend_expiry(connection: sa.Connection, job_id: str, expires_at: float) -> None:
    """A finished job that was asked for again stays as long as a new one would."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == job_id, jobs.c.expires_at < expires_at)
        .values(expires_at=expires_at)
    )
