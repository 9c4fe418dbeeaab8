"""The runs of one process: kept alive in the database, and told when they are to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock, Thread

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.states import Status
from sluice_core.runtime.children import EndReason

log = structlog.get_logger(__name__)

#: Seconds between looks at who owns our jobs; cancel must reach a child within 2 s.
LOOK_EVERY = 0.7
#: Seconds between beats.
BEAT_EVERY = 3.0


class Running:
    """Registry of this process' runs, with the thread that watches over them.

    The thread raises the beat of each open attempt, and compares each run's epoch with the
    database: a job that was canceled, deleted or given to another run stops here, with Redis or
    without it. While the database is away it says so through `store_away`.
    """

    def __init__(self, engine: sa.Engine, *, on_beat: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._on_beat = on_beat
        self._lock = Lock()
        self._runs: dict[str, tuple[str, int]] = {}
        self._reasons: dict[str, str] = {}
        self._wake = Event()
        self._stopping = False
        self._thread = Thread(target=self._watch, name="running", daemon=True)
        self._away_since: float | None = None
        self._last_look = time.monotonic()
        self._next_beat = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join(5.0)

    def add(self, attempt_id: str, job_id: str, epoch: int) -> None:
        with self._lock:
            self._runs[attempt_id] = (job_id, epoch)
        self._wake.set()

    def remove(self, attempt_id: str) -> None:
        with self._lock:
            self._runs.pop(attempt_id, None)
            self._reasons.pop(attempt_id, None)

    def reason(self, attempt_id: str) -> str | None:
        """Why the run must stop, as `EndReason`; None while it may go on."""
        return self._reasons.get(attempt_id)

    def jobs(self) -> list[tuple[str, int]]:
        """(job id, epoch) of what runs now."""
        with self._lock:
            return list(self._runs.values())

    def store_away(self) -> str | None:
        """Why nothing may be fetched now, or None."""
        return "the database is away" if self._away_since is not None else None

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
        """Whether the thread is dead, or no look has been finished for too long."""
        return not self._thread.is_alive() or time.monotonic() - self._last_look > after

    def _watch(self) -> None:
        while not self._stopping:
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

    def _pause(self) -> None:
        if self._runs or self._away_since is not None:
            # A new run is no reason to hurry: it has just been claimed.
            time.sleep(LOOK_EVERY)
        else:
            self._wake.wait(BEAT_EVERY)

    def _look(self) -> None:
        with self._lock:
            mine = dict(self._runs)
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY
            if mine:
                with write(self._engine) as connection:
                    runs.beat(connection, list(mine))
            self._on_beat()
        if mine or self._away_since is not None:
            with read(self._engine) as connection:
                owners = runs.owners(connection, [job_id for job_id, _ in mine.values()])
            for attempt_id, (job_id, epoch) in mine.items():
                reason = _reason(owners.get(job_id), epoch)
                if reason is not None:
                    with self._lock:
                        if attempt_id in self._runs:
                            self._reasons[attempt_id] = reason


def _reason(owner: tuple[int, Status] | None, epoch: int) -> str | None:
    if owner is None or owner[1] is Status.CANCELED:
        return EndReason.CANCELED
    return EndReason.STALE if owner[0] != epoch else None
