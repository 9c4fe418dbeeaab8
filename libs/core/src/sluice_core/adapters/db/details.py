"""What belongs to jobs: their files, and their children by state."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from sluice_core.adapters.db.rows import to_artifact
from sluice_core.adapters.db.schema import artifacts, jobs
from sluice_core.domain.job import Artifact, ChildCounts
from sluice_core.domain.plan import SUBTITLE
from sluice_core.domain.states import ACTIVE, Status

_VISIBLE = jobs.c.deleted_at.is_(None)


def child_counts(connection: sa.Connection, parent_ids: Sequence[str]) -> dict[str, ChildCounts]:
    """Counted by query: there is no counter that could be wrong."""
    if not parent_ids:
        return {}
    query = (
        sa.select(jobs.c.parent_id, jobs.c.status, sa.func.count())
        .where(jobs.c.parent_id.in_(parent_ids), _VISIBLE)
        .group_by(jobs.c.parent_id, jobs.c.status)
    )
    by_parent: dict[str, dict[Status, int]] = {}
    for parent_id, status, count in connection.execute(query):
        by_parent.setdefault(parent_id, {})[Status(status)] = count
    return {parent_id: _counts(of) for parent_id, of in by_parent.items()}


def _counts(of: dict[Status, int]) -> ChildCounts:
    return ChildCounts(
        total=sum(of.values()),
        success=of.get(Status.SUCCESS, 0),
        partial=of.get(Status.PARTIAL, 0),
        failed=of.get(Status.FAILED, 0),
        canceled=of.get(Status.CANCELED, 0),
        active=sum(n for s, n in of.items() if s in ACTIVE),
    )


def any_files(connection: sa.Connection) -> bool:
    """Whether anything is stored at all."""
    return connection.execute(sa.select(artifacts.c.job_id).limit(1)).first() is not None


def files_of(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, list[Artifact]]:
    if not job_ids:
        return {}
    query = (
        sa.select(artifacts)
        .where(artifacts.c.job_id.in_(job_ids))
        # The media first: who takes one file takes that.
        .order_by(artifacts.c.kind == SUBTITLE, artifacts.c.name)
    )
    found: dict[str, list[Artifact]] = {}
    for row in connection.execute(query):
        found.setdefault(row.job_id, []).append(to_artifact(row))
    return found
