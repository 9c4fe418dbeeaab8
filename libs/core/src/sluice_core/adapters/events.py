"""Job events for whoever watches: one capped Redis stream. A signal, never the truth."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import redis

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.job import Job


@dataclass(frozen=True, slots=True)
class Event:
    """What changed: enough to show progress, and to know when to read the job anew."""

    #: `job` when the state changed, `progress` when only figures did.
    kind: str
    job_id: str
    parent_id: str | None
    api_key_id: str | None
    #: The job's version at this event: older ones are of no interest.
    version: int
    status: str
    waiting_for: str | None
    #: As `sluice_core.domain.job.Progress`.
    progress: dict[str, Any]


def event_of(job: Job, kind: str) -> Event:
    return Event(
        kind=kind,
        job_id=job.id,
        parent_id=job.parent_id,
        api_key_id=job.api_key_id,
        version=job.version,
        status=job.status.value,
        waiting_for=job.waiting_for.value if job.waiting_for else None,
        progress=asdict(job.progress),
    )


def emit(client: redis.Redis, event: Event) -> str:
    """Append to the stream; returns the entry's id.

    Raises:
        BrokerAwayError: Redis does not answer; whoever watches falls back to the database.

    """
    with call():
        entry = client.xadd(
            keys.EVENTS,
            {"e": json.dumps(asdict(event), ensure_ascii=False)},
            maxlen=keys.EVENTS_MAXLEN,
            approximate=True,
        )
    return entry.decode() if isinstance(entry, bytes) else str(entry)


def decode(fields: dict[Any, Any]) -> Event:
    """An entry of the stream as read back."""
    raw = fields[b"e"] if b"e" in fields else fields["e"]
    return Event(**json.loads(raw))
