"""Jobs whose failure may have passed by itself: tried again by nobody's hand, a few times."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import moves
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.db.schema import attempts, jobs
from sluice_core.domain.errors import ErrorClass
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status


@dataclass(frozen=True, slots=True)
class Rule:
    """Which failed jobs get another chance; times are Unix seconds."""

    #: Failed before: what broke had time to heal.
    failed_before: float
    #: Failed after: nobody waits for what is older.
    failed_after: float
    #: Failures in all, those of earlier chances included, below which there is another one.
    max_failures: int


def candidates(connection: sa.Connection, rule: Rule, *, limit: int) -> list[str]:
    """Job ids, those that failed first first."""
    query = sa.select(jobs.c.id).where(*_conditions(rule)).order_by(jobs.c.updated_at).limit(limit)
    return list(connection.execute(query).scalars())


def retry(
    connection: sa.Connection, job_id: str, rule: Rule, *, now: float
) -> list[OutboxRow] | None:
    """Retry a candidate as a person would; None when it is none any more.

    Returns:
        the rows to publish.

    """
    parent_id = sa.select(jobs.c.parent_id).where(jobs.c.id == job_id).scalar_subquery()
    # A parent's row is locked before its children's, as everywhere.
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == parent_id).with_for_update())
    query = sa.select(jobs.c.id).where(jobs.c.id == job_id, *_conditions(rule)).with_for_update()
    if connection.execute(query).first() is None:
        return None
    return moves.retry(connection, job_id, now=now)


def _conditions(rule: Rule) -> tuple[sa.ColumnElement[bool], ...]:
    failures = (
        sa.select(sa.func.count())
        .where(
            attempts.c.job_id == jobs.c.id,
            attempts.c.outcome == "failed",
            attempts.c.stage != Actor.HELP.value,
        )
        .scalar_subquery()
    )
    return (
        jobs.c.status == Status.FAILED.value,
        jobs.c.error_class == ErrorClass.TRANSIENT.value,
        jobs.c.deleted_at.is_(None),
        jobs.c.updated_at.between(rule.failed_after, rule.failed_before),
        failures < rule.max_failures,
    )
