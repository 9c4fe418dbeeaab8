"""What is cleared away, and what is found again: statements of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import ordering, search
from sluice_core.adapters.db import outbox as outbox_store
from sluice_core.adapters.db.rows import next_version, to_job
from sluice_core.adapters.db.schema import (
    artifacts,
    attempts,
    dead_letters,
    gone_jobs,
    idempotency_keys,
    jobs,
    segments,
)
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import ACTIVE, TERMINAL, Status, WaitingFor

#: Seconds for which a deleted job is remembered by its id: as long as a message of it may wait.
GONE_KEPT = 7 * 86_400.0

_ACTIVE = [s.value for s in ACTIVE]
_TERMINAL = [s.value for s in TERMINAL]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Files of one ended job that may go: all of its epochs up to `epoch`, but for `keep`."""

    job_id: str
    epoch: int
    #: Storage keys that stay.
    keep: frozenset[str]
    #: The row goes too, once the files are gone.
    delete_row: bool
    #: Whether a run of it ever began: without, there are no files to look for.
    ran: bool
    #: The order that this sweep follows; a later one, e.g. of a deletion, stays to be done.
    asked_at: float


def due_ids(connection: sa.Connection, *, now: float, limit: int) -> list[str]:
    """Jobs whose files of no more use may be removed."""
    query = (
        sa.select(jobs.c.id)
        .where(jobs.c.sweep_at <= now, jobs.c.status.in_(_TERMINAL))
        .order_by(jobs.c.sweep_at)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def begin(connection: sa.Connection, job_id: str, *, now: float) -> Sweep | None:
    """`begin_many` for one; None when the job moved on."""
    return next(iter(begin_many(connection, [job_id], now=now)), None)


def begin_many(connection: sa.Connection, job_ids: Sequence[str], *, now: float) -> list[Sweep]:
    """Forget what is to be removed, under the rows' locks; jobs that moved on are left out.

    Committed before a file is touched: a retry that comes in between starts from the beginning,
    with a higher epoch, whose files the sweep leaves alone.
    """
    rows = connection.execute(
        sa.update(jobs)
        .where(
            jobs.c.id.in_(_locked(connection, job_ids)),
            jobs.c.sweep_at <= now,
            jobs.c.status.in_(_TERMINAL),
        )
        .values(plan=None, sources=None, **next_version())
        .returning(jobs.c.id, jobs.c.epoch, jobs.c.deleted_at, jobs.c.sweep_at)
    ).all()
    deleted = [row.id for row in rows if row.deleted_at is not None]
    connection.execute(sa.delete(artifacts).where(artifacts.c.job_id.in_(deleted)))
    keys: dict[str, set[str]] = {row.id: set() for row in rows}
    kept = sa.select(artifacts.c.job_id, artifacts.c.key).where(artifacts.c.job_id.in_(keys))
    for job_id, key in connection.execute(kept):
        keys[job_id].add(key)
    runs = sa.select(attempts.c.job_id).where(attempts.c.job_id.in_(keys)).distinct()
    ran = set(connection.execute(runs).scalars())
    return [
        Sweep(
            row.id,
            row.epoch,
            frozenset(keys[row.id]),
            delete_row=row.deleted_at is not None,
            ran=row.id in ran,
            asked_at=row.sweep_at,
        )
        for row in rows
    ]


def _locked(connection: sa.Connection, job_ids: Sequence[str]) -> list[str]:
    """Those that nobody else holds: who waits while he holds some may wait for ever."""
    query = sa.select(jobs.c.id).where(jobs.c.id.in_(job_ids))
    return list(connection.execute(query.with_for_update(skip_locked=True)).scalars())


def done(connection: sa.Connection, sweep: Sweep) -> None:
    """`done_many` for one."""
    done_many(connection, [sweep])


def done_many(connection: sa.Connection, sweeps: Sequence[Sweep]) -> None:
    """The files are gone. Jobs that somebody else holds just now stay due."""
    free = set(_locked(connection, [sweep.job_id for sweep in sweeps]))
    swept = {sweep.job_id: sweep for sweep in sweeps if sweep.job_id in free}
    query = sa.select(jobs.c.id, jobs.c.epoch, jobs.c.sweep_at).where(jobs.c.id.in_(swept))
    same = [
        swept[row.id]
        for row in connection.execute(query)
        if (row.epoch, row.sweep_at) == (swept[row.id].epoch, swept[row.id].asked_at)
    ]
    kept = [sweep.job_id for sweep in same if not sweep.delete_row]
    connection.execute(sa.update(jobs).where(jobs.c.id.in_(kept)).values(sweep_at=None))
    gone = [sweep.job_id for sweep in same if sweep.delete_row]
    # A callback that is on its way is sent although its job is gone.
    outbox_store.remove_of_jobs(connection, gone)
    for table in (attempts, idempotency_keys, dead_letters, segments):
        connection.execute(sa.delete(table).where(table.c.job_id.in_(gone)))
    search.forget(connection, gone)
    connection.execute(sa.delete(jobs).where(jobs.c.id.in_(gone)))
    if gone:
        ids = [{"id": job_id, "gone_at": swept[job_id].asked_at} for job_id in gone]
        connection.execute(insert_or_ignore(connection, gone_jobs), ids)


def expire_files(connection: sa.Connection, *, now: float, limit: int) -> int:
    """Drop the files of ended jobs whose time is over; returns how many jobs."""
    # Locked: one that is asked for again just now is kept.
    query = (
        sa.select(jobs.c.id)
        .where(jobs.c.expires_at <= now, jobs.c.status.in_(_TERMINAL))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(query).scalars())
    if ids:
        connection.execute(sa.delete(artifacts).where(artifacts.c.job_id.in_(ids)))
        connection.execute(
            sa.update(jobs)
            .where(jobs.c.id.in_(ids))
            .values(expires_at=None, dedup_key=None, sweep_at=now, updated_at=now, **next_version())
        )
    return len(ids)


def purge_rows(connection: sa.Connection, *, older_than: float, now: float, limit: int) -> int:
    """Mark long-ended jobs without files for deletion; returns how many."""
    query = (
        sa.select(jobs.c.id)
        .where(
            jobs.c.finished_at <= older_than,
            jobs.c.status.in_(_TERMINAL),
            jobs.c.deleted_at.is_(None),
            jobs.c.expires_at.is_(None),
        )
        .limit(limit)
        # Locked: one that is retried just now is kept.
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(query).scalars())
    if ids:
        connection.execute(
            sa.update(jobs).where(jobs.c.id.in_(ids)).values(deleted_at=now, sweep_at=now)
        )
    return len(ids)


def purge_excess(connection: sa.Connection, *, cap: int, now: float, limit: int) -> int:
    """Mark the oldest ended jobs beyond the cap for deletion, files and all; returns how many."""
    ended = sa.and_(jobs.c.status.in_(_TERMINAL), jobs.c.deleted_at.is_(None))
    newest_over = connection.execute(
        sa.select(jobs.c.id).where(ended).order_by(jobs.c.id.desc()).offset(cap).limit(1)
    ).scalar()
    if newest_over is None:
        return 0
    oldest = sa.select(jobs.c.id).where(ended, jobs.c.id <= newest_over).limit(limit)
    ids = list(connection.execute(oldest.with_for_update(skip_locked=True)).scalars())
    gone = {"deleted_at": now, "sweep_at": now, "dedup_key": None, "updated_at": now}
    connection.execute(
        sa.update(jobs).where(jobs.c.id.in_(ids), ended).values(**gone, **next_version())
    )
    return len(ids)


def _orphans(older_than: float) -> sa.Select[tuple[object, ...]]:
    return sa.select(jobs).where(
        jobs.c.status.in_(_ACTIVE),
        jobs.c.updated_at <= older_than,
        jobs.c.deleted_at.is_(None),
        sa.or_(jobs.c.waiting_for.is_(None), jobs.c.waiting_for != WaitingFor.CHILDREN.value),
        ~sa.exists().where(
            outbox_table.c.job_id == jobs.c.id,
            outbox_table.c.actor.in_(outbox_store.OWNERS),
        ),
        ~sa.exists().where(
            attempts.c.job_id == jobs.c.id,
            attempts.c.stage != Actor.HELP.value,
            attempts.c.ended_at.is_(None),
        ),
    )


def has_orphans(connection: sa.Connection, *, older_than: float) -> bool:
    """Whether `adopt_orphans` has anything to do; takes no write lock."""
    return connection.execute(_orphans(older_than).limit(1)).first() is not None


def adopt_orphans(
    connection: sa.Connection, *, older_than: float, now: float, limit: int
) -> list[outbox_store.OutboxRow]:
    """Order anew what is active but neither runs nor is ordered. Should never find any."""
    query = _orphans(older_than).limit(limit)
    orders = []
    for row in connection.execute(query).all():
        job = to_job(row)
        taken = connection.execute(
            sa.update(jobs)
            .where(jobs.c.id == job.id, jobs.c.epoch == job.epoch, jobs.c.status.in_(_ACTIVE))
            .values(waiting_for=WaitingFor.WORKER.value, updated_at=now, **next_version())
        )
        if taken.rowcount:
            orders.append(ordering.order(connection, job, now=now))
    return orders


def exists(connection: sa.Connection, job_id: str) -> bool:
    """Whether there is a row at all, deleted ones included, or was one not long ago."""
    rows = (sa.select(table.c.id).where(table.c.id == job_id) for table in (jobs, gone_jobs))
    return connection.execute(sa.union_all(*rows)).first() is not None


def purge_gone(connection: sa.Connection, *, now: float) -> int:
    """Forget deleted jobs whose messages have had their time; returns how many."""
    old = sa.delete(gone_jobs).where(gone_jobs.c.gone_at <= now - GONE_KEPT)
    return connection.execute(old).rowcount


def scratch_owners(
    connection: sa.Connection, job_ids: list[str]
) -> dict[str, tuple[int, Status, bool]]:
    """Job id -> (epoch, status, may go on with a download): which local folders may not go."""
    query = sa.select(
        jobs.c.id, jobs.c.epoch, jobs.c.status, jobs.c.sources, jobs.c.sweep_at
    ).where(jobs.c.id.in_(job_ids), jobs.c.deleted_at.is_(None))
    return {r.id: (r.epoch, Status(r.status), _may_go_on(r)) for r in connection.execute(query)}


def _may_go_on(row: Any) -> bool:
    # An ended job that was swept has outlived the time for which its partial work is kept.
    return row.sources is None and (row.status in _ACTIVE or row.sweep_at is not None)
