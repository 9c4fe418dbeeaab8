"""The runs of one process: kept alive in the database, and told when they are to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import liveness, steering
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.steering import Wishes
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.domain.states import ACTIVE, Status
from sluice_core.runtime.children import EndReason

log = structlog.get_logger(__name__)

#: Seconds between looks at who owns our jobs; cancel must reach a child within 2 s.
LOOK_EVERY = 0.7
#: Seconds between beats.
BEAT_EVERY = 3.0
#: Seconds beyond its hard limit after which a run that nothing ends makes this process unfit.
STUCK_AFTER = 60.0


@dataclass(frozen=True, slots=True)
class _Entry:
    job_id: str
    #: None: it goes on whoever owns the job, while that is under way.
    epoch: int | None
    #: Monotonic time at which the run is killed.
    hard_at: float
    #: Called at each look from then on, with the seconds that have passed since.
    on_hard: Callable[[float], None]


class Running:
    """Registry of this process' runs, with the threads that watch over them.

    One thread raises the beat of each open attempt, and compares each run's epoch with the
    database: a job that was canceled, deleted or given to another run stops here, with Redis or
    without it. While the database is away it says so through `store_away`. Another thread tells
    Redis, so that a silent Redis delays no cancel.

    What operators wish of this process (queues that are paused, a drain) is read beside it.

    Args:
        engine: the database.
        worker_id: whose wishes to read.
        on_beat: what else is to be told; may raise `BrokerAwayError`.
        beat_every: seconds until it is told again.

    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        worker_id: str = "",
        on_beat: Callable[[], None] = lambda: None,
        beat_every: Callable[[], float] = lambda: BEAT_EVERY,
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._wishes = Wishes(frozenset(), drain=False)
        self._on_beat = on_beat
        self._beat_every = beat_every
        self._lock = Lock()
        self._runs: dict[str, _Entry] = {}
        self._reasons: dict[str, str] = {}
        self._wake = Event()
        self._stopping = Event()
        self._threads = [
            Thread(target=self._watch, name="running", daemon=True),
            Thread(target=self._tell, name="running-signals", daemon=True),
        ]
        self._away_since: float | None = None
        self._last_look = time.monotonic()
        self._next_beat = 0.0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the threads; each is waited for so many seconds."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout)

    def add(
        self,
        attempt_id: str,
        job_id: str,
        epoch: int | None,
        *,
        hard_at: float = float("inf"),
        on_hard: Callable[[float], None] = lambda _late: None,
    ) -> None:
        """Watch over a run, until `remove`.

        Args:
            attempt_id: which run.
            job_id: whose.
            epoch: as claimed; None for a run that does not own its job and only helps.
            hard_at: monotonic time of its hard limit.
            on_hard: called at each look from then on, by the watching thread, with the seconds
                that have passed since.

        """
        with self._lock:
            self._runs[attempt_id] = _Entry(job_id, epoch, hard_at, on_hard)
        self._wake.set()

    def remove(self, attempt_id: str) -> None:
        with self._lock:
            self._runs.pop(attempt_id, None)
            self._reasons.pop(attempt_id, None)

    def reason(self, attempt_id: str) -> str | None:
        """Why the run must stop, as `EndReason`; None while it may go on."""
        return self._reasons.get(attempt_id)

    def jobs(self) -> list[str]:
        """Ids of what runs now."""
        with self._lock:
            return [entry.job_id for entry in self._runs.values()]

    def owned(self) -> list[tuple[str, int]]:
        """(job id, epoch) of those that own their job."""
        with self._lock:
            runs = list(self._runs.values())
        return [(entry.job_id, entry.epoch) for entry in runs if entry.epoch is not None]

    def store_away(self) -> str | None:
        """Why nothing may be fetched now, or None."""
        return "the database is away" if self._away_since is not None else None

    def paused(self) -> frozenset[str]:
        """Queues of which nothing is to be fetched, as last read."""
        return self._wishes.paused

    @property
    def is_asked_to_drain(self) -> bool:
        return self._wishes.drain

    def read_wishes(self) -> None:
        """To be called once before anything is fetched; afterwards the threads do.

        Where nobody can say what is paused, nothing is fetched.
        """
        try:
            self._read_wishes()
        except StoreAwayError:
            self.note_store(away=True)

    def _read_wishes(self) -> None:
        with read(self._engine) as connection:
            self._wishes = steering.wishes_for(connection, self._worker_id)

    def note_store(self, *, away: bool) -> None:
        """Told by whoever meets the database."""
        if away and self._away_since is None:
            self._away_since = time.monotonic()
            log.warning("database_away")
            self._wake.set()
        elif not away and self._away_since is not None:
            log.info("database_back", seconds=round(time.monotonic() - self._away_since, 1))
            self._away_since = None

    def is_stuck(self, after: float = 60.0) -> bool:
        """Whether a thread is dead, no look was finished for too long, or a run can't be ended."""
        now = time.monotonic()
        if any(not thread.is_alive() for thread in self._threads) or now - self._last_look > after:
            return True
        with self._lock:
            return any(now > entry.hard_at + STUCK_AFTER for entry in self._runs.values())

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._look()
                self.note_store(away=False)
            except StoreAwayError:
                self.note_store(away=True)
            except Exception:
                # The thread that keeps all runs alive must outlive any surprise.
                log.exception("watch_failed")
            self._last_look = time.monotonic()
            self._pause()

    def _tell(self) -> None:
        while not self._stopping.is_set():
            try:
                self._on_beat()
            except BrokerAwayError as exc:
                log.debug("signals_lost", error=str(exc))
            except Exception:
                log.exception("signals_failed")
            self._stopping.wait(self._beat_every())

    def _pause(self) -> None:
        if self._runs or self._away_since is not None or self._wishes.paused:
            # A new run is no reason to hurry: it has just been claimed.
            self._stopping.wait(LOOK_EVERY)
        else:
            self._wake.wait(BEAT_EVERY)

    def _look(self) -> None:
        with self._lock:
            mine = dict(self._runs)
        now = time.monotonic()
        self._end_late_ones(mine, now)
        is_beat = now >= self._next_beat
        if is_beat:
            self._next_beat = now + BEAT_EVERY
            if mine:
                with write(self._engine) as connection:
                    liveness.beat(connection, list(mine))
        if mine or self._away_since is not None:
            with read(self._engine) as connection:
                owners = liveness.owners(connection, [entry.job_id for entry in mine.values()])
            for attempt_id, entry in mine.items():
                reason = _reason(owners.get(entry.job_id), entry.epoch)
                if reason is not None:
                    self._stop(attempt_id, reason)
        if is_beat or self._wishes.paused:
            # Who waits for a queue to be resumed is told soon.
            self._read_wishes()

    def _end_late_ones(self, mine: dict[str, _Entry], now: float) -> None:
        for attempt_id, entry in mine.items():
            if now >= entry.hard_at:
                self._stop(attempt_id, EndReason.HARD_LIMIT)
                entry.on_hard(now - entry.hard_at)

    def _stop(self, attempt_id: str, reason: str) -> None:
        with self._lock:
            if attempt_id in self._runs:
                self._reasons[attempt_id] = reason


def _reason(owner: tuple[int, Status] | None, epoch: int | None) -> str | None:
    if owner is None or owner[1] is Status.CANCELED:
        return EndReason.CANCELED
    if epoch is None:
        return None if owner[1] in ACTIVE else EndReason.STALE
    return EndReason.STALE if owner[0] != epoch else None
