"""Jobs as submitters hand them in and look them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters import tracing
from sluice_core.adapters.db import arrivals, outbox, search
from sluice_core.adapters.db.rows import new_job, options_of, to_job
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.adapters.db.types import mended
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import Job, Request
from sluice_core.domain.lanes import Actor, queue_name
from sluice_core.domain.states import Status, WaitingFor

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
    arriving = [_arrive(job, now) for job in new]
    # Two writers that meet the unique keys in different orders would wait for each other.
    in_order = sorted(arriving, key=lambda a: (a.row["dedup_key"] or "", a.row["entry_key"] or ""))
    written = arrivals.write(connection, in_order, now=now)
    return [(a.job, a.order) if a.job.id in written else (None, None) for a in arriving]


def _arrive(new: NewJob, now: float) -> arrivals.Arrival:
    row = _row_of(new, now)
    job = new_job(row)
    entry = search.entry_of(job.id, preset=job.request.preset, url=job.request.url, title=job.title)
    return arrivals.Arrival(job, row, entry, _first_order(job, now))


def _row_of(job: NewJob, now: float) -> dict[str, Any]:
    request = job.request
    waits = request.not_before is not None and request.not_before > now
    return {
        "id": new_id(),
        "url": mended(request.url),
        "preset": request.preset,
        "lane": request.lane.value,
        "options": mended(options_of(request)),
        "dedup_key": job.dedup_key,
        "api_key_id": job.api_key_id,
        "parent_id": job.parent_id,
        "schedule_id": job.schedule_id,
        "entry_key": job.entry_key,
        "entry": mended(job.entry),
        "title": mended((job.entry or {}).get("title")),
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


def attempts_of(connection: sa.Connection, job_id: str) -> list[sa.Row[Any]]:
    """Every run of a job, oldest first; columns as in the schema."""
    query = sa.select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.id)
    return list(connection.execute(query))


def let_go(connection: sa.Connection, job_id: str) -> None:
    """A file of it is lost: the same request is no longer this job, nor its parent."""
    parent = sa.select(jobs.c.parent_id).where(jobs.c.id == job_id).scalar_subquery()
    connection.execute(
        sa.update(jobs)
        .where(sa.or_(jobs.c.id == job_id, jobs.c.id == parent), jobs.c.dedup_key.is_not(None))
        .values(dedup_key=None)
    )


def extend_expiry(connection: sa.Connection, job_id: str, expires_at: float) -> None:
    """A finished job that was asked for again stays as long as a new one would, children too."""
    # A parent's row is locked before its children's, as everywhere.
    for which in (jobs.c.id == job_id, jobs.c.parent_id == job_id):
        connection.execute(
            sa.update(jobs)
            .where(which, jobs.c.expires_at < expires_at)
            .values(expires_at=expires_at)
        )
