"""Fan-out and fan-in: children unique by (parent, entry), settled by counting."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import (
    claims,
    details,
    ordering,
    outbox,
    runs,
    subscriptions,
    tallies,
)
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.rows import error_columns, next_version, to_job
from sluice_core.adapters.db.schema import jobs
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.job import ChildCounts, Job, JobError, Request
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import ACTIVE, Status, WaitingFor
from sluice_core.domain.tallies import of_job


def add_children(
    connection: sa.Connection, run: claims.Claim, entries: Sequence[dict[str, Any]], *, now: float
) -> list[outbox.OutboxRow]:
    """Write newly found entries as child jobs, as the run that expands the parent.

    An entry is {"url", "key", "title"?, ...}; one that the parent already has is left alone, and of
    a subscription one that was ever seen.

    Raises:
        StaleRunError: the parent was canceled, or another run expands it.

    """
    parent = runs.describe(connection, run.job, {"expansion_done": False}, now=now)
    by_key: dict[str, dict[str, Any]] = {}
    for entry in entries:
        by_key.setdefault(hashlib.sha256(entry["key"].encode()).hexdigest(), entry)
    if parent.is_check:
        new_keys = subscriptions.admit(connection, parent.schedule_id or "", by_key, now=now)
        by_key = {key: entry for key, entry in by_key.items() if key in new_keys}
    new = [
        job_store.NewJob(
            request=child_request(parent, entry["url"]),
            api_key_id=parent.api_key_id,
            parent_id=parent.id,
            entry_key=key,
            entry=entry,
            traceparent=parent.traceparent,
        )
        for key, entry in by_key.items()
    ]
    return [order for _, order in job_store.insert_many(connection, new, now=now) if order]


def child_request(parent: Job, url: str) -> Request:
    """What a child is asked for: as the parent, in the bulk lane unless a lane was chosen."""
    lane = Lane.BULK if parent.request.lane is Lane.DEFAULT else parent.request.lane
    return replace(
        parent.request,
        url=url,
        lane=lane,
        playlist="single",
        items=None,
        not_before=None,
        callback_url=None,
        metadata={},
    )


def settle(
    connection: sa.Connection,
    parent_id: str,
    *,
    expires_at: float,
    sweep_at: float,
    now: float,
    before_write: Callable[[], None] = lambda: None,
) -> Job | None:
    """End a collection whose children have all ended; None when there is nothing to do (yet).

    Idempotent: locks the parent, counts its children by query.
    """
    outbox_actor = sa.and_(
        outbox_table.c.job_id == parent_id,
        outbox_table.c.actor == Actor.SETTLE.value,
    )
    query = sa.select(jobs).where(jobs.c.id == parent_id).with_for_update()
    row = connection.execute(query).first()
    connection.execute(sa.delete(outbox_table).where(outbox_actor))
    if row is None or row.waiting_for != WaitingFor.CHILDREN.value or not row.expansion_done:
        return None
    counts = details.child_counts(connection, [parent_id]).get(parent_id, ChildCounts())
    if counts.active:
        return None
    status, error = _outcome(to_job(row), counts)
    before_write()
    ended = connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == parent_id)
        .values(
            status=status.value,
            waiting_for=None,
            finished_at=now,
            updated_at=now,
            expires_at=expires_at if status in (Status.SUCCESS, Status.PARTIAL) else None,
            sweep_at=sweep_at,
            **({} if status in (Status.SUCCESS, Status.PARTIAL) else {"dedup_key": None}),
            **error_columns(error),
            **_nothing_new(to_job(row), counts, now),
            **next_version(),
        )
        .returning(jobs)
    ).one()
    job = to_job(ended)
    tallies.note(connection, of_job(job))
    if job.is_check:
        subscriptions.checked(connection, job.schedule_id or "")
    ordering.ask_to_settle(connection, job, now=now)
    return job


def _outcome(parent: Job, counts: ChildCounts) -> tuple[Status, JobError | None]:
    if parent.is_check and not counts.total:
        return Status.SUCCESS, None
    # Of a subscription's list nobody wants what lies beyond the limit.
    truncated = None if parent.is_check else (parent.plan or {}).get("truncated")
    return outcome_of(counts, truncated=truncated)


def _nothing_new(parent: Job, counts: ChildCounts, now: float) -> dict[str, Any]:
    """A check that found nothing is not worth a row, a few times a day for years."""
    if parent.is_check and not counts.total:
        return {"deleted_at": now}
    return {}


def outcome_of(
    counts: ChildCounts, *, truncated: int | None = None
) -> tuple[Status, JobError | None]:
    """A collection's end: all well, some well, or none.

    Args:
        truncated: how many entries were taken of a list that is longer than allowed.
    """
    if counts.total and counts.success == counts.total:
        if truncated is None:
            return Status.SUCCESS, None
        words = f"only the first {truncated} entries were taken"
        return Status.PARTIAL, JobError("too_many_entries", "permanent", words)
    missing = _missing(counts)
    if counts.success or counts.partial:
        return Status.PARTIAL, JobError("incomplete", "permanent", missing)
    if not counts.total:
        return Status.FAILED, JobError("no_media", "permanent", "the collection is empty")
    return Status.FAILED, JobError("incomplete", "permanent", missing)


def _missing(counts: ChildCounts) -> str:
    """E.g. "of 8 entries 1 is there in part, 1 failed, 2 canceled"."""
    in_part = "is there in part" if counts.partial == 1 else "are there in part"
    parts = ((counts.partial, in_part), (counts.failed, "failed"), (counts.canceled, "canceled"))
    words = ", ".join(f"{number} {what}" for number, what in parts if number)
    return f"of {counts.total} entries {words}"


def unsettled(connection: sa.Connection, limit: int) -> list[str]:
    """Collections that wait for children although none is active: a settle message was lost."""
    child = jobs.alias("child")
    active = [s.value for s in ACTIVE]
    query = (
        sa.select(jobs.c.id)
        .where(
            jobs.c.waiting_for == WaitingFor.CHILDREN.value,
            jobs.c.expansion_done.is_(True),
            ~sa.exists().where(
                child.c.parent_id == jobs.c.id,
                child.c.status.in_(active),
                child.c.deleted_at.is_(None),
            ),
        )
        .limit(limit)
    )
    return [r.id for r in connection.execute(query)]
