"""Runs built-in tasks beside the scheduler's quick duties, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from threading import Event, Thread

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import firings
from sluice_core.adapters.db.engine import write
from sluice_core.domain.errors import BrokerAwayError, SluiceError, StoreAwayError
from sluice_core.domain.schedule import FiringOutcome
from sluice_scheduler.firing import Fired

log = structlog.get_logger(__name__)

#: Does a part of a task and says in words what was done; looks at the event between its steps.
Chore = Callable[[Event], str]
#: Seconds between looks for work, and between tries to write an outcome.
PAUSE = 0.5


class Chores(Thread):
    """A task that fails is told with its firing, and runs again at its next time.

    Args:
        tasks: name of a built-in schedule -> what it does.
        clock: Unix seconds.

    """

    def __init__(
        self, engine: sa.Engine, tasks: Mapping[str, Chore], *, clock: Callable[[], float]
    ) -> None:
        super().__init__(name="chores", daemon=True)
        self._engine = engine
        self._tasks = tasks
        self._clock = clock
        self._waiting: SimpleQueue[Fired] = SimpleQueue()
        self._stopping = Event()

    def put(self, fired: Fired) -> None:
        """Run it soon. A schedule never waits twice here: a firing that has not ended skips it."""
        self._waiting.put(fired)

    def stop(self, timeout: float) -> None:
        """End within `timeout` seconds, between two steps; the next leader closes what is open."""
        self._stopping.set()
        if self.ident is not None:
            self.join(timeout)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                fired = self._waiting.get(timeout=PAUSE)
            except Empty:
                continue
            outcome, message = self._do(fired.schedule.name)
            self._store(fired, outcome, message)

    def _do(self, name: str) -> tuple[FiringOutcome, str]:
        task = self._tasks.get(name)
        if task is None:
            # A newer release planted it, while an update rolls out.
            return FiringOutcome.FAILED, "this scheduler does not know the task"
        try:
            message = task(self._stopping)
        except (StoreAwayError, BrokerAwayError, SluiceError) as exc:
            log.warning("chore_failed", task=name, reason=str(exc))
            return FiringOutcome.FAILED, str(exc)
        except Exception as exc:
            log.exception("chore_crashed", task=name)
            return FiringOutcome.FAILED, f"{type(exc).__name__}: {exc}"
        log.info("chore_done", task=name, message=message)
        return FiringOutcome.OK, message

    def _store(self, fired: Fired, outcome: FiringOutcome, message: str) -> None:
        """Write the outcome; until it is written the schedule counts as running."""
        while True:
            try:
                with write(self._engine) as connection:
                    firings.end(
                        connection,
                        fired.schedule.id,
                        fired.planned_at,
                        outcome=outcome,
                        message=message,
                        now=self._clock(),
                    )
            except StoreAwayError:
                if self._stopping.wait(PAUSE):
                    return
            else:
                return
