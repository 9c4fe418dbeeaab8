"""Whose a stored file is: what a sweep must know before it removes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import artifacts, jobs
from sluice_core.domain.states import ACTIVE, Status


@dataclass(frozen=True, slots=True)
class Owner:
    """A job as far as its files go."""

    epoch: int
    #: Its files are of use until it ends, or until its own sweep comes by.
    may_go_on: bool
    #: Keys that its row or its artifacts point at.
    keys: frozenset[str]
    #: The download is not done: the newest partial work may be continued.
    needs_download: bool


def owners(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, Owner]:
    """Job id -> owner, of those that have a row."""
    # Jobs before artifacts: an end that is seen here has its artifacts below, whatever runs now.
    rows = connection.execute(
        sa.select(
            jobs.c.id, jobs.c.epoch, jobs.c.status, jobs.c.sweep_at, jobs.c.plan, jobs.c.sources
        ).where(jobs.c.id.in_(job_ids))
    ).all()
    finished: dict[str, set[str]] = {}
    query = sa.select(artifacts.c.job_id, artifacts.c.key).where(artifacts.c.job_id.in_(job_ids))
    for job_id, key in connection.execute(query):
        finished.setdefault(job_id, set()).add(key)
    return {row.id: _owner(row, finished.get(row.id, set())) for row in rows}


def _owner(row: Any, finished: set[str]) -> Owner:
    plan = row.plan or {}
    planned = {plan["info_key"]} if "info_key" in plan else set()
    sources = (*(row.sources or ()), *plan.get("fetched", ()))
    fetched = {source.get(name) for source in sources for name in ("key", "gaps_key")}
    active = Status(row.status) in ACTIVE
    return Owner(
        epoch=row.epoch,
        may_go_on=active or row.sweep_at is not None,
        keys=frozenset(finished | planned | fetched - {None, ""}),
        needs_download=row.sources is None,
    )
