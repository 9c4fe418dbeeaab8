"""What the database alone knows of the installation, for metrics: never a count over all jobs."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import counters, job_counts, leases, outbox, tallies
from sluice_core.adapters.db.leases import Lease
from sluice_core.adapters.db.schema import attempts, firings, jobs, schedules
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.schedule import FiringOutcome, Kind
from sluice_core.domain.states import ACTIVE, Status
from sluice_core.domain.tallies import Cells

#: Seconds without a word after which a run counts as stuck: every watchdog is quicker.
STUCK_AFTER = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """One moment."""

    #: Jobs that have not ended.
    active: dict[Status, int]
    #: Stage -> open runs.
    in_progress: dict[str, int]
    #: Runs whose job told nothing for `STUCK_AFTER`.
    stuck: int
    #: Of the downloads under way, together.
    bytes_per_second: float
    outbox_pending: int
    outbox_lag: float
    letters_dropped: int
    #: The scheduler's lease.
    lease: Lease
    #: Built-in task -> when it last ended well, Unix seconds.
    last_success: dict[str, float]
    #: Counters and histograms since the installation was made.
    cells: Cells


def read(connection: sa.Connection, *, lease: str, now: float) -> Vitals:
    """All of it.

    Args:
        connection: of the caller's transaction.
        lease: name of the schedulers' lease.
        now: Unix seconds.

    """
    counts = job_counts.read(connection)
    pending, lag = outbox.lag(connection, now)
    in_progress, stuck, speed = _runs(connection, now)
    return Vitals(
        active={status: counts[status] for status in sorted(ACTIVE)},
        in_progress=in_progress,
        stuck=stuck,
        bytes_per_second=speed,
        outbox_pending=pending,
        outbox_lag=lag,
        letters_dropped=counters.read(connection, counters.DEAD_LETTERS_DROPPED),
        lease=leases.look(connection, lease),
        last_success=_last_success(connection),
        cells=tallies.read(connection),
    )


def _runs(connection: sa.Connection, now: float) -> tuple[dict[str, int], int, float]:
    silent = sa.case(
        (sa.and_(jobs.c.updated_at < now - STUCK_AFTER, attempts.c.stage != Actor.HELP.value), 1),
        else_=0,
    )
    query = (
        sa.select(
            attempts.c.stage,
            sa.func.count(),
            sa.func.sum(silent),
            sa.func.sum(sa.func.coalesce(jobs.c.bytes_per_second, 0.0)),
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.ended_at.is_(None))
        .group_by(attempts.c.stage)
    )
    in_progress = {stage.value: 0 for stage in (*STAGES, Actor.HELP)}
    stuck, speed = 0, 0.0
    for stage, count, quiet, rate in connection.execute(query):
        in_progress[stage] = count
        stuck += quiet
        if stage == Actor.DOWNLOAD.value:
            speed = float(rate)
    return in_progress, stuck, speed


def _last_success(connection: sa.Connection) -> dict[str, float]:
    newest = (
        sa.select(sa.func.max(firings.c.ended_at))
        .where(
            firings.c.schedule_id == schedules.c.id,
            firings.c.outcome == FiringOutcome.OK.value,
        )
        .scalar_subquery()
    )
    query = sa.select(schedules.c.name, newest).where(schedules.c.kind == Kind.BUILTIN.value)
    return {name: at for name, at in connection.execute(query) if at is not None}
