"""What a client is sent first: what it missed, or a snapshot when that can't be told.

The id of an event is `<ms>-<count>`: everything stamped before that moment, less the comparison's
overlap, has been sent. So a client that comes back, to whichever process, is sent what changed
since, out of the database alone.

Behind the event of a job's end stand the job and its version, since the overlap would tell whoever
comes back of this end again and again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from sluice_api.events.comparison import OVERLAP
from sluice_api.events.messages import Watch, end_of
from sluice_api.views import Shown, gather
from sluice_core.adapters.db import changes, listing
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.ids import FORM
from sluice_core.domain.job import Job
from sluice_core.domain.states import ACTIVE, TERMINAL

#: Seconds and changes after which a snapshot says more in less.
MAX_AGE = 3600.0
MAX_MISSED = 1_000
#: Jobs in a snapshot: the newest, and the newest of those that have not ended.
SNAPSHOT = 200

_ID = re.compile(rf"(\d{{1,15}})-\d+(?:-({FORM}\.\d+))?")


@dataclass(frozen=True, slots=True)
class Start:
    """Jobs to begin with, oldest first."""

    shown: list[Shown]
    #: The client can't know what it missed before these, and should read its list anew.
    is_snapshot: bool
    #: Of the jobs that are followed by name, those sent or known to the client.
    versions: Mapping[str, int] = field(default_factory=dict)
    #: None of the jobs that are followed by name is there.
    is_missing: bool = False
    #: Or one of them has ended.
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What a client that comes back knows."""

    #: Everything up to this time.
    since: float
    #: And the end of this job, see `messages.end_of`.
    end: str | None = None


def known_from(last_event_id: str | None, now: float) -> Known | None:
    """What stands in the id; None when that is nothing, or too long ago."""
    match = _ID.fullmatch(last_event_id or "")
    if match is None:
        return None
    moment = int(match[1]) / 1000
    # An id from the future is from another clock, or made up.
    return Known(moment, match[2]) if now - MAX_AGE <= moment <= now + OVERLAP else None


def read_start(connection: sa.Connection, watch: Watch, known: Known | None) -> Start:
    """What the client of `watch` is to be sent."""
    if watch.ids is not None:
        return _start_of_named(connection, watch, watch.ids, known)
    if known is not None:
        missed = changes.since(connection, known.since - OVERLAP, limit=MAX_MISSED + 1)
        if len(missed) <= MAX_MISSED:
            wanted = [c.job_id for c in missed if watch.wants(c.job_id, c.api_key_id)]
            jobs = job_store.get_many(connection, wanted)
            present = [jobs[job_id] for job_id in wanted if job_id in jobs]
            return Start(gather(connection, present), is_snapshot=False)
    return Start(gather(connection, _snapshot(connection, watch)), is_snapshot=True)


def _start_of_named(
    connection: sa.Connection, watch: Watch, ids: frozenset[str], known: Known | None
) -> Start:
    """Few jobs are read by their names: what else changed since does not matter."""
    found = job_store.get_many(connection, sorted(ids)).values()
    jobs = [job for job in found if watch.wants(job.id, job.api_key_id)]
    versions = {job.id: job.version for job in jobs}
    is_missing = not jobs
    is_over = is_missing or any(job.status in TERMINAL for job in jobs)
    if known is not None:
        jobs = [
            job
            for job in jobs
            if job.updated_at >= known.since - OVERLAP and end_of(job) != known.end
        ]
    shown = gather(connection, sorted(jobs, key=lambda job: job.updated_at))
    return Start(shown, known is None, versions, is_missing=is_missing, is_over=is_over)


def _snapshot(connection: sa.Connection, watch: Watch) -> list[Job]:
    newest = listing.Filter(roots_only=True, api_key_id=watch.only_key)
    active = listing.Filter(status=sorted(ACTIVE), api_key_id=watch.only_key)
    found = {
        job.id: job
        for where in (newest, active)
        for job in listing.list_page(connection, where, before_id=None, limit=SNAPSHOT)
    }
    return [found[job_id] for job_id in sorted(found)]
