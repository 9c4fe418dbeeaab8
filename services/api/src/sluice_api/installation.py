"""What `/metrics` tells of the installation, read out of the stores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import gevent
import redis
import structlog
from gevent.lock import BoundedSemaphore
from sqlalchemy.exc import SQLAlchemyError

from sluice_api.database import Database
from sluice_api.threads import Threads
from sluice_api.workers import read_workers
from sluice_core.adapters.db import details, vitals
from sluice_core.adapters.db.leases import Lease
from sluice_core.adapters.metrics.installation import Snapshot
from sluice_core.adapters.redis import call
from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import BrokerAwayError, ConfigError, SluiceError, StoreAwayError
from sluice_core.domain.lanes import STAGES
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.figures import read_queues

log = structlog.get_logger(__name__)

#: Seconds that a reading is shown again: several who scrape at once cost as much as one.
FRESH = 1.0
#: Seconds that one store is given: less than Prometheus gives the page.
PATIENCE = 4.0
#: Seconds between two looks whether the storage can be written.
STORAGE_EVERY = 30.0
#: Seconds that a leader's beat may stand still; it beats several times as often.
LEADER_PATIENCE = 30.0

_AWAY = (
    *(StoreAwayError, BrokerAwayError, ConfigError, SluiceError, gevent.Timeout),
    # Tables that are not there yet.
    SQLAlchemyError,
)


class InstallationReader:
    """Reads a snapshot; what could not be read is left out of it.

    Args:
        database: for what it knows.
        threads: for work on stored files.
        storage: of finished files.
        broker: to ask for queues.
        signals: client of the `sluice:` keys.
        reserve: bytes that must stay free.
        lease: name of the schedulers' lease.
        clock: Unix seconds.

    """

    def __init__(
        self,
        *,
        database: Database,
        threads: Threads,
        storage: Storage,
        broker: SluiceBroker,
        signals: redis.Redis,
        reserve: int,
        lease: str = "scheduler",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._threads = threads
        self._storage = storage
        self._broker = broker
        self._signals = signals
        self._reserve = reserve
        self._lease = lease
        self._clock = clock
        self._reading = BoundedSemaphore()
        self._newest: tuple[float, Snapshot] | None = None
        self._leader = _LeaderWatch()
        self._storage_good_at: float | None = None

    def read(self) -> Snapshot:
        """The newest snapshot, at most `FRESH` seconds old; never fails."""
        with self._reading:
            now = time.monotonic()
            if self._newest is None or now - self._newest[0] > FRESH:
                self._newest = (now, self._read())
            return self._newest[1]

    def _read(self) -> Snapshot:
        found = Snapshot()
        found.put("disk_reserve_bytes", self._reserve)
        parts = [self._vitals, self._redis, self._space, self._queues, self._workers]
        readings = [gevent.spawn(_tried, part, found) for part in parts]
        for store, reading in zip(("database", "redis", "storage"), readings, strict=False):
            found.put("up", int(reading.get()), store)
        gevent.joinall(readings)
        if not any(found.values.get("workers", {}).values()) and _runs_something(found):
            # An emptied Redis knows of no worker for a moment; what runs says otherwise.
            found.values.pop("workers", None)
        return found

    # Each of these asks first and tells then, so that it tells all or nothing.

    def _vitals(self, found: Snapshot) -> None:
        now = self._clock()
        known = self._database.read(lambda c: vitals.read(c, lease=self._lease, now=now))
        found.cells = known.cells
        for status, count in known.active.items():
            found.put("jobs_active", count, status.value)
        for stage, count in known.in_progress.items():
            found.put("stage_in_progress", count, stage)
        for name, value in (
            ("jobs_stuck", known.stuck),
            ("download_bytes_per_second", known.bytes_per_second),
            ("outbox_pending", known.outbox_pending),
            ("outbox_lag_seconds", known.outbox_lag),
            ("dead_letters_dropped_total", known.letters_dropped),
            ("scheduler_leader", int(self._leader.leads(known.lease, time.monotonic()))),
        ):
            found.put(name, value)
        for name, at in known.last_success.items():
            found.put("schedule_last_success_timestamp_seconds", at, name)

    def _redis(self, found: Snapshot) -> None:
        with call():
            told = self._signals.info("memory")
        found.put("redis_memory_bytes", told["used_memory"])
        found.put("redis_memory_max_bytes", told["maxmemory"])
        found.put("redis_noeviction", int(told["maxmemory_policy"] == "noeviction"))

    def _queues(self, found: Snapshot) -> None:
        known = read_queues(self._broker, self._database.read, now=self._clock())
        for name, of in known.items():
            for state in ("waiting", "in_flight", "due", "delayed", "dead"):
                found.put("queue_messages", getattr(of, state), name, state)
            found.put("queue_oldest_age_seconds", of.oldest_age or 0.0, name)
            found.put("queue_paused", int(of.paused), name)

    def _workers(self, found: Snapshot) -> None:
        stages = Counter(worker["stage"] for worker in read_workers(self._signals))
        for stage in STAGES:
            found.put("workers", stages.get(stage.value, 0), stage.value)

    def _space(self, found: Snapshot) -> None:
        seen, now = self._storage_good_at, time.monotonic()
        if seen is None or now - seen > STORAGE_EVERY:
            self._storage_good_at = None
            used = self._database.read(details.any_files)
            self._threads.run(lambda: self._storage.check(used=used))
            self._storage_good_at = now
        free = self._threads.run(self._storage.free_bytes)
        if free is not None:
            found.put("storage_free_bytes", free)


class _LeaderWatch:
    """Whether somebody leads: a lease whose beat moves."""

    def __init__(self) -> None:
        self._seen: Lease | None = None
        self._moved_at = 0.0

    def leads(self, seen: Lease, now: float) -> bool:
        if self._seen is None or (seen.fence, seen.beat) != (self._seen.fence, self._seen.beat):
            # Seen for the first time it has the benefit of the doubt.
            self._moved_at = now
        self._seen = seen
        return bool(seen.holder) and now - self._moved_at <= LEADER_PATIENCE


def _runs_something(found: Snapshot) -> bool:
    return any(found.values.get("stage_in_progress", {}).values())


def _tried(part: Callable[[Snapshot], None], found: Snapshot) -> bool:
    try:
        with gevent.Timeout(PATIENCE):
            part(found)
    except _AWAY as exc:
        log.info("figures_missing", what=part.__name__.strip("_"), reason=str(exc))
        return False
    return True
