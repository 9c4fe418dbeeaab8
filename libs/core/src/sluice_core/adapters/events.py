"""Job events for whoever watches: one capped Redis stream. A signal, never the truth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.job import Job
from sluice_core.domain.members import members


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
        progress=members(job.progress),
    )


def emit(client: redis.Redis, event: Event) -> None:
    """Append to the stream.

    Raises:
        BrokerAwayError: Redis does not answer; whoever watches falls back to the database.

    """
    emit_many(client, [event])


def emit_many(client: redis.Redis, events: Iterable[Event]) -> None:
    """`emit` for many, in order; when it raises, some may have been appended."""
    with call(), client.pipeline(transaction=False) as pipeline:
        for event in events:
            text = json.dumps(members(event), ensure_ascii=False)
            pipeline.xadd(keys.EVENTS, {"e": text}, maxlen=keys.EVENTS_MAXLEN, approximate=True)
        pipeline.execute()


def decode(fields: dict[Any, Any]) -> Event:
    """An entry of the stream as read back."""
    raw = fields[b"e"] if b"e" in fields else fields["e"]
    return Event(**json.loads(raw))
