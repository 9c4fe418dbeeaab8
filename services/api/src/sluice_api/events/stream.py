"""Speaks to one client: what it missed, then what happens, until there is nothing more to say.

The id of an event is `<ms>-<count>`: everything stamped before that moment, less the hub's overlap,
has been sent. So a client that comes back is sent what changed since, out of the database alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_api.database import Database
from sluice_api.events.hub import OVERLAP, Hub
from sluice_api.events.messages import PING, RETRY, RETRY_SOON, Message, Watch, job_message, wire
from sluice_api.events.subscription import Subscription
from sluice_api.positions import Positions
from sluice_api.views import Shown, gather
from sluice_core.adapters.db import changes
from sluice_core.adapters.db import jobs as job_store
from sluice_core.domain.job import Job
from sluice_core.domain.states import ACTIVE, TERMINAL

#: Seconds between comments.
PING_EVERY = 15.0
#: Seconds and changes after which a snapshot says more in less.
MAX_AGE = 3600.0
MAX_MISSED = 1_000
#: Jobs in a snapshot: the newest, and the newest of those that have not ended.
SNAPSHOT = 200

_ID = re.compile(r"(\d{1,15})-\d+")


@dataclass(frozen=True, slots=True)
class Start:
    """What a client is sent first."""

    shown: list[Shown]
    #: The client can't know what it missed before these, and should read its list anew.
    is_snapshot: bool


def since_of(last_event_id: str | None, now: float) -> float | None:
    """Up to when the client knows everything; None when that is unknown or too long ago."""
    match = _ID.fullmatch(last_event_id or "")
    if match is None:
        return None
    moment = int(match[1]) / 1000
    # An id from the future is from another clock, or made up.
    return moment if now - MAX_AGE <= moment <= now + OVERLAP else None


def read_start(connection: sa.Connection, watch: Watch, since: float | None) -> Start:
    """Jobs to begin with, oldest first."""
    if since is not None:
        missed = changes.since(connection, since - OVERLAP, limit=MAX_MISSED + 1)
        if len(missed) <= MAX_MISSED:
            wanted = [c.job_id for c in missed if watch.wants(c.job_id, c.api_key_id)]
            jobs = job_store.get_many(connection, wanted)
            present = [jobs[job_id] for job_id in wanted if job_id in jobs]
            return Start(gather(connection, present), is_snapshot=False)
    return Start(gather(connection, _snapshot(connection, watch)), is_snapshot=True)


def _snapshot(connection: sa.Connection, watch: Watch) -> list[Job]:
    if watch.ids is not None:
        jobs = job_store.get_many(connection, sorted(watch.ids)).values()
        found = {job.id: job for job in jobs if watch.wants(job.id, job.api_key_id)}
    else:
        newest = job_store.Filter(roots_only=True, api_key_id=watch.only_key)
        active = job_store.Filter(status=sorted(ACTIVE), api_key_id=watch.only_key)
        found = {
            job.id: job
            for where in (newest, active)
            for job in job_store.list_page(connection, where, before_id=None, limit=SNAPSHOT)
        }
    return [found[job_id] for job_id in sorted(found)]


class Stream:
    """The body of one answer.

    Args:
        hub: tells what happens.
        database: tells what happened.
        positions: places in the queue.
        watch: what the client wants.
        since: see `since_of`.
        still_allowed: asked at each comment; the stream ends when it says no.

    """

    def __init__(
        self,
        *,
        hub: Hub,
        database: Database,
        positions: Positions,
        watch: Watch,
        since: float | None,
        still_allowed: Callable[[], bool],
        ping_every: float = PING_EVERY,
    ) -> None:
        self._hub = hub
        self._database = database
        self._positions = positions
        self._watch = watch
        self._since = since
        self._still_allowed = still_allowed
        self._ping_every = ping_every
        #: Versions sent at the start: what the hub collected meanwhile may be older.
        self._floor: dict[str, int] = {}

    def __iter__(self) -> Iterator[bytes]:
        yield RETRY
        with self._hub.subscribe(self._watch) as subscription:
            start = self._database.read(lambda c: read_start(c, self._watch, self._since))
            yield from self._begin(start)
            if not (self._watch.ends and _is_over(start)):
                yield from self._follow(subscription)

    def _begin(self, start: Start) -> Iterator[bytes]:
        if start.is_snapshot:
            yield wire("snapshot", {"jobs": len(start.shown)}, self._hub.event_id())
        places = self._positions.find({s.job.id: s.message for s in start.shown if s.message})
        for shown in start.shown:
            self._floor[shown.job.id] = shown.job.version
            view = shown.view(places.get(shown.job.id))
            yield job_message(shown.job, view, self._hub.event_id()).wire

    def _follow(self, subscription: Subscription) -> Iterator[bytes]:
        next_ping = time.monotonic() + self._ping_every
        while not self._hub.is_closing and not subscription.overflowed:
            messages = subscription.take(max(0.0, next_ping - time.monotonic()))
            fresh = [m for m in messages if self._is_fresh(m)]
            if fresh:
                yield b"".join(m.wire for m in fresh)
            if self._watch.ends and any(m.is_last for m in fresh):
                return
            if time.monotonic() >= next_ping:
                if not self._still_allowed():
                    return
                yield PING
                next_ping = time.monotonic() + self._ping_every
        yield RETRY_SOON

    def _is_fresh(self, message: Message) -> bool:
        floor = self._floor.get(message.job_id, -1)
        # A parent is told again at the same version when its children moved.
        return message.version > floor or (message.kind == "job" and message.version == floor)


def _is_over(start: Start) -> bool:
    """Whether the one job that is watched has ended, or is gone."""
    if not start.shown:
        return start.is_snapshot
    return any(s.job.status in TERMINAL for s in start.shown)
