"""A job as the HTTP API shows it: a pure function from values to JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sluice_core.domain.job import Artifact, ChildCounts, Job, Progress, words_for
from sluice_core.domain.members import members
from sluice_core.domain.states import TERMINAL, Status

#: Where jobs live in the API; links are absolute paths, so that they hold behind any host name.
BASE = "/v1/jobs"

#: Of a job that waits in a paused queue.
PAUSED_WORDS = "waiting: the queue is paused"

_NO_CHILDREN = ChildCounts()


def job_view(
    job: Job,
    *,
    files: Sequence[Artifact] = (),
    children: ChildCounts | None = None,
    queue_position: int | None = None,
    queue_paused: bool = False,
) -> dict[str, Any]:
    """The job in the form of the contract; every key is always there.

    Args:
        job: the row.
        files: its finished files.
        children: its children by state, of a collection.
        queue_position: 1 for the next one of its queue; None when it does not wait there.
        queue_paused: nothing of the queue that it waits in is handed out.

    """
    counts = children or _NO_CHILDREN
    self_link = f"{BASE}/{job.id}"
    return {
        "id": job.id,
        "url": job.request.url,
        "status": job.status.value,
        "step": PAUSED_WORDS if queue_paused else words_for(job, counts),
        "waiting_for": job.waiting_for.value if job.waiting_for else None,
        "queue_position": queue_position,
        "retry_at": timestamp(job.retry_at),
        "attempt": job.tries,
        "priority": job.request.lane.value,
        "preset": job.request.preset,
        "progress": progress_view(progress_of(job, counts)),
        "title": job.title,
        "extractor": job.extractor,
        "duration": job.duration,
        "thumbnail": job.thumbnail,
        "parent_id": job.parent_id,
        "children": members(counts),
        "error": _error_view(job),
        "gaps": [gap.to_json() for gap in job.gaps],
        "files": [file_view(job.id, f) for f in files],
        "metadata": job.request.metadata,
        "created_at": timestamp(job.created_at),
        "updated_at": timestamp(job.updated_at),
        "finished_at": timestamp(job.finished_at),
        # While it runs nothing of it expires.
        "expires_at": timestamp(job.expires_at) if job.status in TERMINAL else None,
        "links": {
            "self": self_link,
            "events": f"{self_link}/events",
            "cancel": f"{self_link}/cancel",
            "retry": f"{self_link}/retry",
        },
    }


def progress_of(job: Job, children: ChildCounts) -> Progress:
    """How far the job is; a collection whose list was read is as far as its children."""
    progress = job.progress
    if progress.percent is not None or not (job.expansion_done and children.total):
        return progress
    if job.status is Status.SUCCESS:
        return Progress(percent=100.0)
    return Progress(percent=round(100 * (1 - children.active / children.total), 1))


def progress_view(progress: Progress) -> dict[str, Any]:
    """Figures rounded to what they are worth."""
    return {
        "percent": _rounded(progress.percent),
        "bytes": progress.bytes,
        "total_bytes": progress.total_bytes,
        "bytes_per_second": _rounded(progress.bytes_per_second),
        "eta_seconds": _rounded(progress.eta_seconds),
    }


def file_view(job_id: str, file: Artifact) -> dict[str, Any]:
    return {
        "name": file.name,
        "kind": file.kind,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "content_type": file.content_type,
        "url": f"{BASE}/{job_id}/files/{quote(file.name, safe='')}",
    }


def timestamp(seconds: float | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _error_view(job: Job) -> dict[str, Any] | None:
    error = job.error
    if error is None:
        return None
    return {
        "code": error.code,
        "class": str(error.error_class),
        "message": error.message,
        "help": error.help,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
