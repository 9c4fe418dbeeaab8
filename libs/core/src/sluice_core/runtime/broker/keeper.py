"""The thread that shows that a process lives, and sees whether it does."""

from __future__ import annotations

import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import structlog

from sluice_core.domain.errors import BrokerAwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sluice_core.runtime.broker.scripts import Scripts
    from sluice_core.runtime.broker.slots import Slots

log = structlog.get_logger(__name__)

#: Seconds between looks.
TICK = 1.0

#: Seconds between signs of life; a fifth of what a worker is given.
BEAT_EVERY = 3.0

#: Seconds between looks into the own ack sets.
RECONCILE_EVERY = 5.0

#: Seconds without a finished look after which the keeper counts as stuck. More than two calls to a
#: silent server take, since an absent server is no fault of this process.
STUCK_AFTER = 30.0

#: Name of the pause that the keeper holds.
_PAUSE = "asked"


class Keeper(Thread):
    """Beats, returns strangers from the own ack sets, pauses fetching when asked to.

    Args:
        pause_reason: says why nothing may be fetched now, or None; called every second, and must
            neither block nor raise.
        paused: queues known to be paused; a change ends a wait that was begun without it.

    """

    def __init__(
        self,
        *,
        scripts: Scripts,
        worker_id: str,
        queues: Sequence[str],
        slots: Slots,
        fetching: Lock,
        pause_reason: Callable[[], str | None],
        paused: Callable[[], frozenset[str]],
    ) -> None:
        super().__init__(name="keeper", daemon=True)
        self._scripts = scripts
        self._worker_id = worker_id
        self._queues = queues
        self._slots = slots
        self._fetching = fetching
        self._pause_reason = pause_reason
        self._paused = paused
        self._seen_paused: frozenset[str] = frozenset()
        self._stopping = Event()
        self._last_look = time.monotonic()
        self._last_beat: float | None = None
        self._next_beat = self._next_reconcile = 0.0
        self._away = False
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """End the thread; join it afterwards."""
        self._stopping.set()

    @property
    def last_beat_age(self) -> float | None:
        """Seconds since the server took a beat; None before the first."""
        last = self._last_beat
        return None if last is None else time.monotonic() - last

    @property
    def is_stuck(self) -> bool:
        """Whether no look was finished for too long."""
        return time.monotonic() - self._last_look > STUCK_AFTER

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._look()
                self._last_look = time.monotonic()
                self._stopping.wait(TICK)
        except Exception as exc:  # told by the worker's health
            self.failure = exc
            log.critical("keeper_died", exc_info=exc)

    def _look(self) -> None:
        self.pause_if_asked()
        try:
            self._nudge_if_changed()
            self._beat()
            self._reconcile()
        except BrokerAwayError as exc:
            if not self._away:
                log.warning("keeper_lost_the_broker", error=str(exc))
            self._away = True
        else:
            self._away = False

    def pause_if_asked(self) -> None:
        """Fetch, or do not, as `pause_reason` says now."""
        reason = self._pause_reason()
        if reason is None:
            if self._slots.resume(_PAUSE):
                log.info("consumer_resumed")
        elif self._slots.pause(_PAUSE):
            log.warning("consumer_paused", reason=reason)

    def _nudge_if_changed(self) -> None:
        paused = self._paused()
        if paused != self._seen_paused:
            self._scripts.nudge(self._worker_id)
            self._seen_paused = paused

    def _beat(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._scripts.beat(self._worker_id)
            self._last_beat = time.monotonic()
            self._next_beat = self._last_beat + BEAT_EVERY

    def _reconcile(self) -> None:
        if time.monotonic() < self._next_reconcile:
            return
        # A fetch under way puts ids into the ack set that nobody holds yet.
        if not self._fetching.acquire(timeout=TICK):
            return
        try:
            returned = self._scripts.reconcile(self._worker_id, self._queues, self._slots.known())
        finally:
            self._fetching.release()
        self._next_reconcile = time.monotonic() + RECONCILE_EVERY
        if returned:
            log.warning("stranded_messages_returned", count=returned)
