"""All that the database knows of one job, for an explanation."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import details, steering
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.schema import attempts, outbox
from sluice_core.domain.explain import Attempt, Order, Standing
from sluice_core.domain.job import ChildCounts
from sluice_core.domain.lanes import Actor

#: Runs and messages that are told; of more, the newest.
MAX_ATTEMPTS = 50
MAX_ORDERS = 20


def standing(connection: sa.Connection, job_id: str) -> Standing | None:
    """None when there is no such job."""
    job = job_store.get(connection, job_id)
    if job is None:
        return None
    runs = connection.execute(
        sa.select(attempts)
        .where(attempts.c.job_id == job_id)
        .order_by(attempts.c.id.desc())
        .limit(MAX_ATTEMPTS)
    ).all()
    total = connection.execute(
        sa.select(sa.func.count()).where(attempts.c.job_id == job_id)
    ).scalar_one()
    orders = connection.execute(
        sa.select(outbox).where(outbox.c.job_id == job_id).order_by(outbox.c.id).limit(MAX_ORDERS)
    ).all()
    return Standing(
        job=job,
        children=details.child_counts(connection, [job_id]).get(job_id, ChildCounts()),
        files=len(details.files_of(connection, [job_id]).get(job_id, ())),
        attempts=tuple(_attempt(r) for r in reversed(runs)),
        earlier_attempts=total - len(runs),
        orders=tuple(_order(r) for r in orders),
        # Nobody waits for help.
        paused=frozenset(steering.paused(connection))
        & {r.queue for r in orders if r.actor != Actor.HELP.value},
    )


def _attempt(row: sa.Row[Any]) -> Attempt:
    r = row._mapping  # noqa: SLF001  # SQLAlchemy's documented way to read by name
    return Attempt(**{name: r[name] for name in Attempt.__dataclass_fields__})


def _order(row: sa.Row[Any]) -> Order:
    r = row._mapping  # noqa: SLF001  # as above
    return Order(
        id=r["id"],
        actor=Actor(r["actor"]),
        queue=r["queue"],
        epoch=r["epoch"],
        due_at=r["due_at"],
        published_at=r["published_at"],
        publishes=r["publishes"],
    )
