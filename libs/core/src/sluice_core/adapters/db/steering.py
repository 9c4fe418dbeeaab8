"""What operators ask of queues and workers: rows, so that it outlives every restart."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db.schema import drains, paused_queues
from sluice_core.adapters.db.upsert import insert_or_ignore

#: Seconds after which a drain is forgotten: its worker has long ended, or never was.
DRAIN_KEPT = 86_400.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue of which nothing is handed out."""

    queue: str
    #: Unix seconds.
    paused_at: float
    #: In words.
    paused_by: str


def pause(connection: sa.Connection, queue: str, *, by: str, now: float) -> bool:
    """Hand out nothing of a queue; False when it was paused already."""
    insert = insert_or_ignore(connection, paused_queues).values(
        queue=queue, paused_at=now, paused_by=by[:128]
    )
    return connection.execute(insert.returning(paused_queues.c.queue)).first() is not None


def resume(connection: sa.Connection, queue: str) -> bool:
    """Hand out again; False when it was not paused."""
    gone = connection.execute(sa.delete(paused_queues).where(paused_queues.c.queue == queue))
    return gone.rowcount == 1


def paused(connection: sa.Connection) -> dict[str, Pause]:
    """Queue -> its pause, of all that are paused."""
    rows = connection.execute(sa.select(paused_queues).order_by(paused_queues.c.queue))
    return {r.queue: Pause(r.queue, r.paused_at, r.paused_by) for r in rows}


def ask_to_drain(connection: sa.Connection, worker: str, *, now: float) -> bool:
    """Ask a worker to end when it is idle; False when it was asked before."""
    connection.execute(sa.delete(drains).where(drains.c.asked_at <= now - DRAIN_KEPT))
    insert = insert_or_ignore(connection, drains).values(worker=worker, asked_at=now)
    return connection.execute(insert.returning(drains.c.worker)).first() is not None


def draining(connection: sa.Connection) -> frozenset[str]:
    """Workers that were asked to drain, those included that have ended since."""
    return frozenset(connection.execute(sa.select(drains.c.worker)).scalars())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What concerns one worker."""

    paused: frozenset[str]
    drain: bool


def wishes_for(connection: sa.Connection, worker: str) -> Wishes:
    """One small question, asked every few seconds by each worker."""
    queues = sa.select(paused_queues.c.queue)
    mine = sa.select(sa.literal("")).where(sa.exists().where(drains.c.worker == worker))
    found = set(connection.execute(sa.union_all(queues, mine)).scalars())
    return Wishes(frozenset(found - {""}), "" in found)
