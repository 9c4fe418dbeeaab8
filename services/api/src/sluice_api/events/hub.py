"""Finds out what is new, once for all clients of this process.

Redis says at once what changed, and the database what is true. Nothing depends on Redis: it may be
emptied, away, or lose a signal; every two seconds the hub compares versions with the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import gevent
import redis
import sqlalchemy as sa
import structlog
from gevent.event import Event as Signal

from sluice_api.database import Database
from sluice_api.events.audience import Audience
from sluice_api.events.client import Client
from sluice_api.events.comparison import Comparison
from sluice_api.events.dispatcher import Dispatcher
from sluice_api.events.feed import Feed
from sluice_api.events.memory import Memory
from sluice_api.events.messages import Watch, deleted_message, job_message, progress_message
from sluice_api.positions import Positions
from sluice_api.views import Shown, gather
from sluice_core.adapters import tracing
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.events import Event
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.job import Progress

log = structlog.get_logger(__name__)

#: Seconds between comparisons with the database.
COMPARE_EVERY = 2.0
#: Seconds in which changes of one job become one event.
COALESCE = 0.05
#: Jobs read in one go.
CHUNK = 200
#: Above every version: whatever is said of a deleted job later is no news.
_GONE = 2**62


class Hub:
    """Tells clients what changed.

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
        self._positions = positions
        self._clock = clock
        self._feed = Feed(stream, block=block)
        self._comparison = Comparison(database, clock)
        self._audience = Audience()
        self._dispatcher = Dispatcher(self._audience)
        self._memory = Memory()
        #: Jobs to be read and told, with whose they are.
        self._dirty: dict[str, str | None] = {}
        self._building: set[str] = set()
        self._parents: dict[str, str | None] = {}
        self._wake = Signal()
        self._loops: dict[str, gevent.Greenlet[..., None]] = {}
        #: As the comparison's cursor, of what was not only found but told.
        self._told_up_to = 0.0
        self._count = 0

    @property
    def clients(self) -> int:
        return len(self._audience)

    @property
    def is_closing(self) -> bool:
        """Whether all streams are about to end."""
        return self._dispatcher.is_closing

    def event_id(self) -> str:
        """Says up to when a client that saw this event knows everything; see `stream`."""
        self._count += 1
        return f"{int(self._told_up_to * 1000)}-{self._count}"

    def join(self, watch: Watch, still_allowed: Callable[[], bool]) -> Client:
        """A client that collects from now on, until it leaves."""
        client = Client(watch, still_allowed=still_allowed, on_news=self._dispatcher.ready)
        self._audience.add(client)
        self._start()
        return client

    def note(self, versions: Mapping[str, int]) -> None:
        """A client that follows these jobs by name was sent them."""
        for job_id, version in versions.items():
            self._memory.note(job_id, version)

    def leave(self, client: Client) -> None:
        """Idempotent."""
        self._dispatcher.leave(client)

    def ready(self, client: Client) -> None:
        """There is room to send it more; does not wait."""
        self._dispatcher.ready(client)

    def stop(self) -> None:
        """Let all streams end; safe in a signal handler."""
        self._dispatcher.stop()

    def close(self) -> None:
        self.stop()
        gevent.killall(list(self._loops.values()), timeout=1)
        self._dispatcher.dismiss_all()
        self._feed.close()

    def _is_wanted(self) -> bool:
        return len(self._audience) > 0

    def _start(self) -> None:
        loops = (
            self._follow_redis,
            self._follow_database,
            self._tell_dirty,
            self._dispatcher.send,
            self._dispatcher.comment,
        )
        dead = [f for f in loops if f.__name__ not in self._loops or self._loops[f.__name__].dead]
        if len(dead) == len(loops):
            # Whatever was told before, these clients did not hear it.
            self._memory.clear()
            self._told_up_to = self._comparison.begin()
        for loop in dead:
            self._loops[loop.__name__] = gevent.spawn(self._guard, loop)

    def _guard(self, loop: Callable[[], None]) -> None:
        """A fault of ours must not leave clients with a stream that looks alive."""
        # Begun by one request, and at work for all.
        tracing.leave()
        while self._is_wanted():
            try:
                loop()
            except Exception:
                log.exception("event_loop_failed", loop=loop.__name__)
                gevent.sleep(1.0)

    def _follow_redis(self) -> None:
        self._feed.follow(self._hear, wanted=self._is_wanted)

    def _hear(self, event: Event) -> None:
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
        self._audience.tell(progress_message(job, told.children, self.event_id()))
        return True

    def _follow_database(self) -> None:
        while self._is_wanted():
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
        for page in self._comparison.by_time():
            for change in page:
                if change.version > self._memory.version(change.job_id):
                    self._mark(change.job_id, change.api_key_id)
        named = self._audience.named()
        named.update(self._memory.active())
        for page in self._comparison.by_name(named):
            for change in page:
                if change.version > self._memory.noted(change.job_id):
                    self._mark(change.job_id, change.api_key_id)

    def _mark(self, job_id: str, api_key_id: str | None) -> None:
        self._dirty[job_id] = api_key_id
        self._wake.set()

    def _tell_dirty(self) -> None:
        while self._is_wanted():
            self._wake.wait(COMPARE_EVERY)
            gevent.sleep(COALESCE)
            self._wake.clear()
            found_up_to = self._comparison.cursor
            while self._dirty:
                self._tell_some()
            self._told_up_to = found_up_to

    def _tell_some(self) -> None:
        chunk = dict(self._dirty.popitem() for _ in range(min(CHUNK, len(self._dirty))))
        self._building = set(chunk)
        try:
            self._tell(dict(chunk))
        except StoreAwayError as exc:
            log.warning("events_postponed", error=str(exc))
            self._dirty.update(chunk)
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
            self._audience.tell(deleted_message(job_id, api_key_id, self.event_id()))

    def _tell_job(self, shown: Shown, place: int | None) -> None:
        job = shown.job
        told = self._memory.get(job.id)
        is_news = job.version > self._memory.version(job.id)
        if not is_news and (told is None or told.children == shown.children):
            return
        self._memory.keep(job, shown.children)
        self._audience.tell(job_message(job, shown.view(place), self.event_id()))
        if job.parent_id is not None and (told is None or told.job.status is not job.status):
            # A parent's own row does not change with its children's, but what is shown of it does.
            self._parents[job.parent_id] = job.api_key_id


def _shown(job_ids: list[str]) -> Callable[[sa.Connection], list[Shown]]:
    return lambda c: gather(c, list(job_store.get_many(c, job_ids).values()))
