"""Finds lost workers, orders and parents: each of them delays a job, none loses it."""

from __future__ import annotations

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import collections, liveness, sweeps, tallies
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.beats import BeatWatch
from sluice_core.domain.quarantine import max_losses
from sluice_core.domain.tallies import Tally

log = structlog.get_logger(__name__)

#: Seconds an active job may be neither running nor ordered before it is ordered anew.
ORPHAN_AFTER = 30.0
BATCH = 200


def lost_workers(
    engine: sa.Engine,
    watch: BeatWatch,
    *,
    monotonic: float,
    now: float,
    keep_partial: float,
    lone_losses: int = 1,
) -> list[OutboxRow]:
    """Take the jobs of workers that stopped beating and order them anew.

    Args:
        engine: the database.
        watch: what was seen of them so far.
        monotonic: own seconds.
        now: Unix seconds.
        keep_partial: seconds that partial work of a job that fails here is kept.
        lone_losses: of its own process that an operator allows a job.

    Returns:
        rows to publish.

    """
    with read(engine) as connection:
        beats = [(row.id, row.beat) for row in liveness.open_attempts(connection)]
    rows: list[OutboxRow] = []
    for attempt_id in watch.observe(beats, monotonic):
        with write(engine) as connection:
            taken = liveness.declare_lost(
                connection,
                attempt_id,
                max_losses=max_losses(lone_losses, seen=False),
                sweep_at=now + keep_partial,
                now=now,
            )
            if taken is not None:
                tallies.note(connection, [Tally("reconciled_total", {"what": "lost_worker"})])
        if taken is not None:
            job, orders = taken
            log.warning("worker_lost", attempt=attempt_id, losses=job.losses, **job.log_context())
            rows += orders
    return rows


def orphans(engine: sa.Engine, *, now: float) -> list[OutboxRow]:
    """Order anew what is active but neither runs nor is ordered."""
    with read(engine) as connection:
        found = sweeps.has_orphans(connection, older_than=now - ORPHAN_AFTER)
    if not found:
        return []
    with write(engine) as connection:
        rows = sweeps.adopt_orphans(connection, older_than=now - ORPHAN_AFTER, now=now, limit=BATCH)
        if rows:
            adopted = Tally("reconciled_total", {"what": "orphan"}, len(rows))
            tallies.note(connection, [adopted])
    if rows:
        log.warning("orphans_adopted", jobs=[row.job_id for row in rows])
    return rows


def unsettled(engine: sa.Engine, *, expires_at: float, now: float) -> int:
    """Settle collections whose last message got lost; returns how many ended."""
    with read(engine) as connection:
        parents = collections.unsettled(connection, BATCH)
    ended = 0
    for parent_id in parents:
        with write(engine) as connection:
            job = collections.settle(
                connection, parent_id, expires_at=expires_at, sweep_at=now, now=now
            )
            if job is not None:
                tallies.note(connection, [Tally("reconciled_total", {"what": "unsettled_parent"})])
        ended += job is not None
    return ended
