"""Finds out what is new, once for all clients of this process.

Redis says at once what changed, and the database what is true. Nothing depends on Redis: it may be
emptied, away, or lose a signal; every two seconds the hub compares versions with the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gevent
import redis
import sqlalchemy as sa
import structlog
from gevent.event import Event as Signal

from sluice_api.database import Database
from sluice_api.events.memory import Memory
from sluice_api.events.messages import (
    Message,
    Watch,
    deleted_message,
    job_message,
    progress_message,
)
from sluice_api.events.subscription import Subscription
from sluice_api.positions import Positions
from sluice_api.views import Shown, gather
from sluice_core.adapters import events
from sluice_core.adapters.db import changes
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.changes import Change
from sluice_core.adapters.events import Event
from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.domain.job import Progress

log = structlog.get_logger(__name__)

#: Seconds between comparisons with the database.
COMPARE_EVERY = 2.0
#: Seconds that a transaction may take from its time stamp to its commit, and clocks may differ.
OVERLAP = 5.0
#: Seconds in which changes of one job become one event.
COALESCE = 0.05
#: Jobs read in one go.
CHUNK = 200
#: Changes looked at in one comparison; the next one goes on from there.
MAX_CHANGES = 10_000
_PAGE = 1_000
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)


class Hub:
    """Tells subscriptions what changed.

    Args:
        database: the truth.
        stream: Redis client that may block longer than `block`.
        positions: places in the queue.
        block: seconds that one read of the stream waits.
        clock: Unix seconds, as workers stamp their writes.

    """

    def __init__(
        self,
        database: Database,
        stream: redis.Redis,
        positions: Positions,
        *,
        block: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._stream = stream
        self._positions = positions
        self._block = block
        self._clock = clock
        self._subscriptions: set[Subscription] = set()
        self._memory = Memory()
        #: Jobs to be read and told, with whose they are.
        self._dirty: dict[str, str | None] = {}
        self._building: set[str] = set()
        self._parents: dict[str, str | None] = {}
        self._wake = Signal()
        self._loops: dict[str, gevent.Greenlet[..., None]] = {}
        #: All changes stamped before this, less `OVERLAP`, were looked at.
        self._cursor = 0.0
        self._count = 0
        self.is_closing = False

    @property
    def clients(self) -> int:
        return len(self._subscriptions)

    def event_id(self) -> str:
        """Says up to when a client that saw this event knows everything; see `stream`."""
        self._count += 1
        return f"{int(self._cursor * 1000)}-{self._count}"

    @contextmanager
    def subscribe(self, watch: Watch) -> Iterator[Subscription]:
        """A subscription that collects from now on."""
        subscription = Subscription(watch)
        self._subscriptions.add(subscription)
        self._start()
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def stop(self) -> None:
        """Let all streams end; safe in a signal handler."""
        self.is_closing = True
        for subscription in list(self._subscriptions):
            subscription.wake()

    def close(self) -> None:
        self.stop()
        gevent.killall(list(self._loops.values()), timeout=1)
        self._stream.close()

    def _start(self) -> None:
        loops = (self._follow_redis, self._follow_database, self._tell_dirty)
        dead = [f for f in loops if f.__name__ not in self._loops or self._loops[f.__name__].dead]
        if len(dead) == len(loops):
            # Whatever was told before, these clients did not hear it.
            self._memory.clear()
            self._cursor = self._clock()
        for loop in dead:
            self._loops[loop.__name__] = gevent.spawn(self._guard, loop)

    def _guard(self, loop: Callable[[], None]) -> None:
        """A fault of ours must not leave clients with a stream that looks alive."""
        while self._subscriptions:
            try:
                loop()
            except Exception:
                log.exception("event_loop_failed", loop=loop.__name__)
                gevent.sleep(1.0)

    # -- what Redis says ------------------------------------------------------------------------

    def _follow_redis(self) -> None:
        last = "$"
        failures = 0
        while self._subscriptions:
            try:
                last = self._read_events(last)
                failures = 0
            except BrokerAwayError as exc:
                if failures == 0:
                    log.warning("event_stream_away", error=str(exc))
                gevent.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def _read_events(self, last: str) -> str:
        with call():
            answer: Any = self._stream.xread(
                {keys.EVENTS: last}, count=CHUNK, block=int(self._block * 1000)
            )
        # Both forms in which servers answer, by protocol version.
        streams = answer.values() if isinstance(answer, dict) else [s[1] for s in answer or ()]
        for entries in streams:
            for entry_id, fields in _flat(entries):
                last = entry_id
                self._hear(fields)
        return last

    def _hear(self, fields: dict[Any, Any]) -> None:
        try:
            event = events.decode(fields)
        except (ValueError, TypeError, KeyError):
            # Of another release, or not ours; the database tells what it was about.
            log.warning("event_unreadable")
            return
        if event.version <= self._memory.version(event.job_id):
            return
        if not self._tell_progress(event):
            self._mark(event.job_id, event.api_key_id)

    def _tell_progress(self, event: Event) -> bool:
        """Pass figures on without the database; False when more than figures may have changed."""
        told = self._memory.get(event.job_id)
        if event.kind != "progress" or told is None:
            return False
        if event.job_id in self._dirty or event.job_id in self._building:
            return False
        if (event.status, event.waiting_for or "") != (
            told.job.status.value,
            told.job.waiting_for or "",
        ):
            return False
        job = replace(
            told.job,
            progress=Progress(**event.progress),
            version=event.version,
            updated_at=self._clock(),
        )
        self._memory.keep(job, told.children)
        self._broadcast(progress_message(job, told.children, self.event_id()))
        return True

    # -- what the database says -----------------------------------------------------------------

    def _follow_database(self) -> None:
        while self._subscriptions:
            gevent.sleep(COMPARE_EVERY / 2)
            self._dirty.update(self._parents)
            self._parents.clear()
            self._wake.set()
            gevent.sleep(COMPARE_EVERY / 2)
            try:
                self._compare()
            except StoreAwayError as exc:
                log.warning("comparison_postponed", error=str(exc))

    def _compare(self) -> None:
        begun = self._clock()
        watched = self._watched()
        moment, after = self._cursor - OVERLAP, ""
        for _ in range(MAX_CHANGES // _PAGE):
            page = self._database.read(_page_of(moment, after))
            self._notice(page)
            if len(page) < _PAGE:
                self._cursor = begun
                break
            moment, after = page[-1].updated_at, page[-1].job_id
        else:
            # The next comparison, which looks back by the overlap, goes on from here.
            self._cursor = min(begun, moment + OVERLAP)
        for start in range(0, len(watched), CHUNK):
            self._notice(self._database.read(_of_jobs(watched[start : start + CHUNK])))

    def _watched(self) -> list[str]:
        """Jobs that are compared by name: whatever clocks say, their changes are seen."""
        named: set[str] = set(self._memory.active())
        for subscription in self._subscriptions:
            named.update(subscription.watch.ids or ())
        return sorted(named)[:MAX_CHANGES]

    def _notice(self, page: list[Change]) -> None:
        for change in page:
            if change.version > self._memory.version(change.job_id):
                self._mark(change.job_id, change.api_key_id)

    # -- telling --------------------------------------------------------------------------------

    def _mark(self, job_id: str, api_key_id: str | None) -> None:
        self._dirty[job_id] = api_key_id
        self._wake.set()

    def _tell_dirty(self) -> None:
        while self._subscriptions:
            self._wake.wait(COMPARE_EVERY)
            gevent.sleep(COALESCE)
            self._wake.clear()
            while self._dirty:
                chunk = [self._dirty.popitem() for _ in range(min(CHUNK, len(self._dirty)))]
                self._building = {job_id for job_id, _ in chunk}
                try:
                    self._tell(dict(chunk))
                except StoreAwayError as exc:
                    # The comparison finds them again once the database is back.
                    log.warning("events_postponed", error=str(exc))
                    gevent.sleep(1.0)
                finally:
                    self._building = set()

    def _tell(self, wanted: dict[str, str | None]) -> None:
        shown = self._database.read(_shown(list(wanted)))
        places = self._positions.find({s.job.id: s.message for s in shown if s.message})
        for one in shown:
            del wanted[one.job.id]
            self._tell_job(one, places.get(one.job.id))
        for job_id, api_key_id in wanted.items():
            self._memory.drop(job_id, _GONE)
            self._broadcast(deleted_message(job_id, api_key_id, self.event_id()))

    def _tell_job(self, shown: Shown, place: int | None) -> None:
        job = shown.job
        told = self._memory.get(job.id)
        is_news = job.version > self._memory.version(job.id)
        if not is_news and (told is None or told.children == shown.children):
            return
        self._memory.keep(job, shown.children)
        self._broadcast(job_message(job, shown.view(place), self.event_id()))
        if job.parent_id is not None and (told is None or told.job.status is not job.status):
            # A parent's own row does not change with its children's, but what is shown of it does.
            self._parents[job.parent_id] = job.api_key_id

    def _broadcast(self, message: Message) -> None:
        for subscription in self._subscriptions:
            subscription.offer(message)


#: Above every version: whatever is said of a deleted job later is no news.
_GONE = 2**62


def _flat(entries: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    for entry in entries:
        if isinstance(entry, list):
            # One level deeper in the newer protocol.
            yield from _flat(entry)
        else:
            yield entry


def _page_of(moment: float, after: str) -> Callable[[sa.Connection], list[Change]]:
    return lambda c: changes.since(c, moment, after_id=after, limit=_PAGE)


def _of_jobs(job_ids: list[str]) -> Callable[[sa.Connection], list[Change]]:
    return lambda c: changes.of_jobs(c, job_ids)


def _shown(job_ids: list[str]) -> Callable[[sa.Connection], list[Shown]]:
    return lambda c: gather(c, list(job_store.get_many(c, job_ids).values()))
