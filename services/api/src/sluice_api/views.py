"""Jobs with all that the API shows of them, read with few queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_api.positions import MAX_LOOKUPS
from sluice_api.prefix import under
from sluice_core.adapters.db import details, outbox, steering
from sluice_core.domain.job import Artifact, ChildCounts, Job
from sluice_core.domain.lanes import queue_name
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.domain.view import job_view

_HAS_FILES = (Status.SUCCESS, Status.PARTIAL)


@dataclass(frozen=True, slots=True)
class Shown:
    """A job and what belongs to it."""

    job: Job
    files: tuple[Artifact, ...] = ()
    children: ChildCounts | None = None
    #: (queue, message id) while it waits for a worker.
    message: tuple[str, str] | None = None
    #: Nothing of the queue that it waits in is handed out.
    queue_paused: bool = False

    def view(self, queue_position: int | None = None, *, prefix: str = "") -> dict[str, Any]:
        """As the API shows it; `prefix`: see the module of that name."""
        view = job_view(
            self.job,
            files=self.files,
            children=self.children,
            queue_position=queue_position,
            queue_paused=self.queue_paused,
        )
        return under(prefix, view)


def gather(connection: sa.Connection, jobs: Sequence[Job]) -> list[Shown]:
    """The jobs with their files, children and messages, in the same order."""
    files = details.files_of(connection, [j.id for j in jobs if _may_have_files(j)])
    counts = details.child_counts(connection, [j.id for j in jobs if j.is_collection])
    waiting = [j.id for j in jobs if j.waiting_for is WaitingFor.WORKER]
    messages = {job_id: _message_of(connection, job_id) for job_id in waiting[:MAX_LOOKUPS]}
    paused = steering.paused(connection) if waiting else {}
    return [
        Shown(
            job,
            files=tuple(files.get(job.id, ())),
            children=counts.get(job.id),
            message=messages.get(job.id),
            queue_paused=job.waiting_for is WaitingFor.WORKER
            and queue_name(job.stage, job.request.lane) in paused,
        )
        for job in jobs
    ]


def _may_have_files(job: Job) -> bool:
    # A retry goes on from files with gaps, which stay until it has others.
    return job.status in _HAS_FILES or bool(job.gaps)


def _message_of(connection: sa.Connection, job_id: str) -> tuple[str, str] | None:
    # A callback of an earlier end may be on its way too, and slots may be asked to help.
    rows = [r for r in outbox.of_job(connection, job_id) if r.actor in outbox.OWNERS]
    return (rows[-1].queue, rows[-1].id) if rows else None
