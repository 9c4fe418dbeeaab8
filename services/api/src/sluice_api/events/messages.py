"""What is sent to listening clients, rendered once for all of them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from sluice_api.prefix import under
from sluice_core.domain.job import ChildCounts, Job, words_for
from sluice_core.domain.states import TERMINAL
from sluice_core.domain.view import progress_view, timestamp


@dataclass(frozen=True, slots=True)
class Message:
    """One event."""

    #: `job`, `progress` or `deleted`.
    kind: str
    job_id: str
    #: Whose job it is.
    api_key_id: str | None
    #: Of the job: an older one tells nothing new.
    version: int
    #: Whether nothing more will come for this job.
    is_last: bool
    #: As it goes over the wire.
    wire: bytes
    #: The whole job and the event's id, where its links are shown.
    view: dict[str, Any] | None = None
    event_id: str = ""

    def wire_under(self, prefix: str) -> bytes:
        """The same for a client behind a proxy; see `sluice_api.prefix`."""
        if not prefix or self.view is None:
            return self.wire
        return wire(self.kind, under(prefix, self.view), self.event_id)


@dataclass(frozen=True, slots=True)
class Watch:
    """What one client listens to."""

    #: Only these jobs; None for all.
    ids: frozenset[str] | None = None
    #: Only jobs of this API key; None for all.
    only_key: str | None = None
    #: The stream ends with the job's end.
    ends: bool = False
    #: In front of links.
    prefix: str = ""

    def wants(self, job_id: str, api_key_id: str | None) -> bool:
        if self.ids is not None and job_id not in self.ids:
            return False
        return self.only_key is None or api_key_id == self.only_key


RETRY = b"retry: 3000\n\n"
#: Milliseconds from which and over which clients of a process that ends come back: another one is
#: there soon, and thousands must not ask it in the same moment.
SOON, SPREAD = 1_000, 4_000
#: Proxies and clients see that the stream lives, and a lost client is noticed by it.
PING = b": still here\n\n"


def retry_soon() -> bytes:
    """To a client of a process that ends."""
    return b"retry: %d\n\n" % (SOON + random.randrange(SPREAD))  # noqa: S311  # no secret


def end_of(job: Job) -> str:
    """Names this end of the job, and no later one after a retry."""
    return f"{job.id}.{job.version}"


def job_message(job: Job, view: dict[str, Any], event_id: str) -> Message:
    if job.status in TERMINAL:
        event_id = f"{event_id}-{end_of(job)}"
    return Message(
        kind="job",
        job_id=job.id,
        api_key_id=job.api_key_id,
        version=job.version,
        is_last=job.status in TERMINAL,
        wire=wire("job", view, event_id),
        view=view,
        event_id=event_id,
    )


def progress_message(job: Job, children: ChildCounts | None, event_id: str) -> Message:
    """Only what moves: the client has the rest."""
    data = {
        "id": job.id,
        "status": job.status.value,
        "step": words_for(job, children),
        "progress": progress_view(job.progress),
        "updated_at": timestamp(job.updated_at),
    }
    return Message(
        kind="progress",
        job_id=job.id,
        api_key_id=job.api_key_id,
        version=job.version,
        is_last=False,
        wire=wire("progress", data, event_id),
    )


def deleted_message(job_id: str, api_key_id: str | None, event_id: str) -> Message:
    return Message(
        kind="deleted",
        job_id=job_id,
        api_key_id=api_key_id,
        version=2**63,
        is_last=True,
        wire=wire("deleted", {"id": job_id}, event_id),
    )


def wire(event: str, data: dict[str, Any], event_id: str) -> bytes:
    """One event in the form of the standard; JSON has no line breaks of its own."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event_id}\nevent: {event}\ndata: {text}\n\n".encode()
