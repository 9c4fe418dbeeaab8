"""What people do to a job that is there: cancel, retry, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import dead_letters, ordering, outbox, tallies
from sluice_core.adapters.db.rows import error_columns, next_version, progress_columns, to_job
from sluice_core.adapters.db.schema import attempts, jobs, segments
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.errors import CODES
from sluice_core.domain.job import Job, JobError, Progress
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.states import ACTIVE, RETRYABLE, RUNNING_STATE, Status, WaitingFor
from sluice_core.domain.tallies import canceled, of_run

#: Jobs that one statement restarts: a database takes only so many parameters.
BATCH = 1000
_ACTIVE = [s.value for s in ACTIVE]
_VISIBLE = jobs.c.deleted_at.is_(None)
#: What an ended job has and one that runs again has not. Its files stay until others replace them,
#: and so do the gaps that they have and the time that they have left.
_UNENDED: dict[str, Any] = {
    "finished_at": None,
    "sweep_at": None,
}


def cancel(connection: sa.Connection, job_id: str, *, now: float) -> Job | None:
    """End an active job and its active children; None when it is not active.

    The epoch is raised: whatever runs notices within a second, whatever arrives late is dropped.
    """
    found = cancel_many(connection, [job_id], now=now)
    return found[0] if found else None


def cancel_many(connection: sa.Connection, job_ids: Sequence[str], *, now: float) -> list[Job]:
    """`cancel` for many with few statements; returns those that were active, oldest first."""
    own = (
        sa.select(jobs.c.id)
        .where(jobs.c.id.in_(job_ids), jobs.c.status.in_(_ACTIVE), _VISIBLE)
        .order_by(jobs.c.id)
        .with_for_update()
    )
    ids = list(connection.execute(own).scalars())
    if not ids:
        return []
    family = sa.or_(jobs.c.id.in_(ids), jobs.c.parent_id.in_(ids))
    ended = connection.execute(
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
        .returning(jobs.c.preset)
    )
    presets = Counter(row.preset for row in ended)
    tallies.note(connection, [canceled(preset, n) for preset, n in presets.items()])
    _drop_runs(connection, sa.select(jobs.c.id).where(family), now=now)
    query = sa.select(jobs).where(jobs.c.id.in_(ids)).order_by(jobs.c.id)
    asked_for = [to_job(r) for r in connection.execute(query)]
    for job in asked_for:
        ordering.ask_to_settle(connection, job, now=now)
    return asked_for


def _drop_runs(connection: sa.Connection, job_ids: sa.Select[tuple[str]], *, now: float) -> None:
    """Take back orders, close attempts and share nothing; ended ones among them have none."""
    connection.execute(
        sa.delete(outbox_table).where(
            outbox_table.c.job_id.in_(job_ids), outbox_table.c.actor.in_(outbox.RUN_ACTORS)
        )
    )
    connection.execute(sa.delete(segments).where(segments.c.job_id.in_(job_ids)))
    closed = connection.execute(
        sa.update(attempts)
        .where(attempts.c.job_id.in_(job_ids), attempts.c.ended_at.is_(None))
        .values(ended_at=now, outcome="canceled")
        .returning(attempts.c.stage, attempts.c.claimed_at)
    )
    tallies.note(
        connection,
        [t for row in closed for t in of_run(row.stage, "canceled", now - row.claimed_at)],
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
        return _restart(connection, [job], now=now)
    children = _retry_children(connection, job, now=now)
    if not job.expansion_done:
        return [*_restart(connection, [job], now=now), *children]
    _reopen(connection, job, now=now)
    return [
        ordering.order_settle(connection, job.id, job.request.lane, now=now),
        *children,
    ]


def _lock_retryable(connection: sa.Connection, job_id: str) -> Job | None:
    query = sa.select(jobs).where(jobs.c.id == job_id, _VISIBLE).with_for_update()
    row = connection.execute(query).first()
    return to_job(row) if row is not None and Status(row.status) in RETRYABLE else None


def _restart(
    connection: sa.Connection, again: Sequence[Job], *, now: float
) -> list[outbox.OutboxRow]:
    """Let locked jobs begin at the first stage that each has left."""
    rows: list[outbox.OutboxRow] = []
    for stage in STAGES:
        ids = [job.id for job in again if first_stage_left(job) is stage]
        for start in range(0, len(ids), BATCH):
            rows += _restart_at(connection, stage, ids[start : start + BATCH], now=now)
    return rows


def _restart_at(
    connection: sa.Connection, stage: Actor, job_ids: Sequence[str], *, now: float
) -> list[outbox.OutboxRow]:
    dead_letters.remove_of_jobs(connection, job_ids)
    # A job that has done nothing yet begins at its beginning.
    status = Status.PENDING if stage is Actor.PARSE else RUNNING_STATE[stage]
    restarted = connection.execute(
        sa.update(jobs)
        .where(jobs.c.id.in_(job_ids))
        .values(
            status=status.value,
            stage=stage.value,
            epoch=jobs.c.epoch + 1,
            waiting_for=WaitingFor.WORKER.value,
            tries=0,
            losses=0,
            wanted_at=now,
            updated_at=now,
            **_UNENDED,
            **error_columns(None),
            **progress_columns(Progress()),
            **next_version(),
        )
        .returning(jobs)
    )
    # As they were made: of a collection, in the order of its list.
    found = sorted((to_job(row) for row in restarted), key=lambda job: job.id)
    return ordering.order_many(connection, found, now=now)


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
    return _restart(connection, children, now=now)


def _reopen(connection: sa.Connection, parent: Job, *, now: float) -> None:
    """A collection whose list was read waits for its children once more."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.id == parent.id)
        .values(
            status=Status.DOWNLOADING.value,
            epoch=jobs.c.epoch + 1,
            waiting_for=WaitingFor.CHILDREN.value,
            wanted_at=now,
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
