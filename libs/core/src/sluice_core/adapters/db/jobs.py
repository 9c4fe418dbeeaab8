"""Jobs as submitters and operators see and move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from sluice_core.adapters.db import dead_letters, outbox, parts, runs
from sluice_core.adapters.db.rows import (
    error_columns,
    next_version,
    options_of,
    progress_columns,
    to_job,
)
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import CODES
from sluice_core.domain.job import Job, JobError, Progress, Request
from sluice_core.domain.lanes import Actor, queue_name
from sluice_core.domain.states import ACTIVE, RETRYABLE, RUNNING_STATE, Status, WaitingFor

_ACTIVE = [s.value for s in ACTIVE]
_VISIBLE = jobs.c.deleted_at.is_(None)
#: What an ended job has and one that runs again has not.
_UNENDED: dict[str, Any] = {"finished_at": None, "expires_at": None, "sweep_at": None}


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
    insert = _insert_or_ignore(connection).returning(jobs)
    # Two writers that meet the unique keys in different orders would wait for each other.
    in_order = sorted(values, key=lambda v: (v["dedup_key"] or "", v["entry_key"] or ""))
    rows = {r.id: r for r in connection.execute(insert, in_order)}
    result: list[tuple[Job | None, outbox.OutboxRow | None]] = []
    orders: list[outbox.OutboxRow] = []
    for value in values:
        row = rows.get(value["id"])
        if row is None:
            result.append((None, None))
            continue
        job = to_job(row)
        order = _first_order(job, now)
        orders.append(order)
        result.append((job, order))
    outbox.add_many(connection, orders, now)
    return result


def _insert_or_ignore(connection: sa.Connection) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(jobs).on_conflict_do_nothing()


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
        "traceparent": job.traceparent,
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
    #: Unix seconds: changed since.
    since: float | None = None
    api_key_id: str | None = None
    #: Only jobs that are not children.
    roots_only: bool = False


def list_page(
    connection: sa.Connection, where: Filter, *, before_id: str | None, limit: int
) -> list[Job]:
    """Newest first, keyset pages: `before_id` is the last id of the page before."""
    query = sa.select(jobs).where(_VISIBLE, *_conditions(where))
    if before_id is not None:
        query = query.where(jobs.c.id < before_id)
    query = query.order_by(jobs.c.id.desc()).limit(limit)
    return [to_job(r) for r in connection.execute(query)]


def _conditions(where: Filter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if where.status:
        found.append(jobs.c.status.in_([s.value for s in where.status]))
    if where.parent_id is not None:
        found.append(jobs.c.parent_id == where.parent_id)
    if where.roots_only:
        found.append(jobs.c.parent_id.is_(None))
    if where.preset is not None:
        found.append(jobs.c.preset == where.preset)
    if where.since is not None:
        found.append(jobs.c.updated_at >= where.since)
    if where.api_key_id is not None:
        found.append(jobs.c.api_key_id == where.api_key_id)
    if where.q:
        found.append(
            sa.or_(
                *(c.istartswith(where.q, autoescape=True) for c in (jobs.c.title, jobs.c.url)),
                jobs.c.id.startswith(where.q.upper(), autoescape=True),
                jobs.c.title.icontains(f" {where.q}", autoescape=True),
            )
        )
    return found


child_counts = parts.child_counts
files_of = parts.files_of


def has_active_beyond(connection: sa.Connection, cap: int) -> bool:
    """Whether more jobs than the cap have not ended, children included."""
    query = sa.select(jobs.c.id).where(jobs.c.status.in_(_ACTIVE)).offset(cap).limit(1)
    return connection.execute(query).first() is not None


def attempts_of(connection: sa.Connection, job_id: str) -> list[sa.Row[Any]]:
    """Every run of a job, oldest first; columns as in the schema."""
    query = sa.select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.id)
    return list(connection.execute(query))


def cancel(connection: sa.Connection, job_id: str, *, now: float) -> Job | None:
    """End an active job and its active children; None when it is not active.

    The epoch is raised: whatever runs notices within a second, whatever arrives late is dropped.
    """
    family = sa.or_(jobs.c.id == job_id, jobs.c.parent_id == job_id)
    own = sa.select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.status.in_(_ACTIVE), _VISIBLE)
    if connection.execute(own.with_for_update()).first() is None:
        return None
    connection.execute(
        sa.update(jobs)
        .where(family, jobs.c.status.in_(_ACTIVE))
        .values(
            status=Status.CANCELED.value,
            epoch=jobs.c.epoch + 1,
            waiting_for=None,
            retry_at=None,
            finished_at=now,
            updated_at=now,
            dedup_key=None,
            sources=None,
            plan=None,
            sweep_at=now,
            **error_columns(JobError("canceled", CODES["canceled"].error_class, "canceled")),
            **progress_columns(Progress()),
            **next_version(),
        )
    )
    _drop_runs(connection, sa.select(jobs.c.id).where(family), now=now)
    job = to_job(connection.execute(sa.select(jobs).where(jobs.c.id == job_id)).one())
    runs.ask_to_settle(connection, job, now=now)
    return job


def _drop_runs(connection: sa.Connection, job_ids: sa.Select[tuple[str]], *, now: float) -> None:
    """Take back orders and close attempts of canceled jobs; ended ones among them have none."""
    connection.execute(
        sa.delete(outbox_table).where(
            outbox_table.c.job_id.in_(job_ids), outbox_table.c.actor.in_(outbox.RUN_ACTORS)
        )
    )
    connection.execute(
        sa.update(attempts)
        .where(attempts.c.job_id.in_(job_ids), attempts.c.ended_at.is_(None))
        .values(ended_at=now, outcome="canceled")
    )


def retry(connection: sa.Connection, job_id: str, *, now: float) -> list[outbox.OutboxRow] | None:
    """Start an ended job again at its first stage not yet done; None when it may not.

    A collection starts its failed and canceled children, and itself only when its list was not
    read to the end. A child opens its parent again, unless that one is all done or still open.

    Returns:
        the rows to publish.

    """
    parent_id = connection.execute(
        sa.select(jobs.c.parent_id).where(jobs.c.id == job_id)
    ).scalar_one_or_none()
    # A parent's row is locked before its children's, as everywhere.
    parent = _lock_retryable(connection, parent_id) if parent_id else None
    job = _lock_retryable(connection, job_id)
    if job is None:
        return None
    if parent is not None and parent.expansion_done:
        _reopen(connection, parent, now=now)
    if not job.is_collection:
        return [_restart(connection, job, now=now)]
    children = _retry_children(connection, job, now=now)
    if not job.expansion_done:
        return [_restart(connection, job, now=now), *children]
    _reopen(connection, job, now=now)
    return [
        runs.order_settle(connection, job.id, job.request.lane, now=now),
        *children,
    ]


def _lock_retryable(connection: sa.Connection, job_id: str) -> Job | None:
    query = sa.select(jobs).where(jobs.c.id == job_id, _VISIBLE).with_for_update()
    row = connection.execute(query).first()
    return to_job(row) if row is not None and Status(row.status) in RETRYABLE else None


def _restart(connection: sa.Connection, job: Job, *, now: float) -> outbox.OutboxRow:
    stage = first_stage_left(job)
    dead_letters.remove_of_job(connection, job.id)
    # A job that has done nothing yet begins at its beginning.
    status = Status.PENDING if stage is Actor.PARSE else RUNNING_STATE[stage]
    row = connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == job.id)
        .values(
            status=status.value,
            stage=stage.value,
            epoch=jobs.c.epoch + 1,
            waiting_for=WaitingFor.WORKER.value,
            tries=0,
            losses=0,
            updated_at=now,
            **_UNENDED,
            **error_columns(None),
            **progress_columns(Progress()),
            **next_version(),
        )
        .returning(jobs)
    ).one()
    return runs.order(connection, to_job(row), now=now)


def first_stage_left(job: Job) -> Actor:
    """What is already fetched is kept: a retry begins where the job failed."""
    if job.sources:
        return Actor.TRANSCODE
    if job.plan:
        return Actor.DOWNLOAD
    return Actor.PARSE


def _retry_children(
    connection: sa.Connection, parent: Job, *, now: float
) -> list[outbox.OutboxRow]:
    again = [s.value for s in RETRYABLE]
    query = sa.select(jobs).where(jobs.c.parent_id == parent.id, jobs.c.status.in_(again), _VISIBLE)
    children = [to_job(r) for r in connection.execute(query.with_for_update())]
    return [_restart(connection, child, now=now) for child in children]


def _reopen(connection: sa.Connection, parent: Job, *, now: float) -> None:
    """A collection whose list was read waits for its children once more."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == parent.id)
        .values(
            status=Status.DOWNLOADING.value,
            epoch=jobs.c.epoch + 1,
            waiting_for=WaitingFor.CHILDREN.value,
            updated_at=now,
            **_UNENDED,
            **error_columns(None),
            **next_version(),
        )
    )


def delete(connection: sa.Connection, job_id: str, *, now: float) -> bool:
    """Hide a job and its children at once; rows and files go with the next sweep."""
    cancel(connection, job_id, now=now)
    gone = connection.execute(
        sa.update(jobs)
        .where(sa.or_(jobs.c.id == job_id, jobs.c.parent_id == job_id), _VISIBLE)
        .values(deleted_at=now, dedup_key=None, updated_at=now, sweep_at=now, **next_version())
    )
    return gone.rowcount > 0


def extend_expiry(connection: sa.Connection, job_id: str, expires_at: float) -> None:
    """A finished job that was asked for again stays as long as a new one would."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == job_id, jobs.c.expires_at < expires_at)
        .values(expires_at=expires_at)
    )


def changed_since(connection: sa.Connection, updated_at: float, *, limit: int) -> list[Job]:
    """Jobs written since, oldest change first: what an event stream compares itself with."""
    query = (
        sa.select(jobs)
        .where(jobs.c.updated_at >= updated_at)
        .order_by(jobs.c.updated_at)
        .limit(limit)
    )
    return [to_job(r) for r in connection.execute(query)]
