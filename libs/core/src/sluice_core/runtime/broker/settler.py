"""Tells the server how messages ended, as often as it takes."""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING

import structlog

from sluice_core.domain.errors import BrokerAwayError

if TYPE_CHECKING:
    from sluice_core.runtime.broker.scripts import Scripts, Settle
    from sluice_core.runtime.broker.slots import Slots

log = structlog.get_logger(__name__)

#: Seconds between tries while the server is away, first and last.
_FIRST_PAUSE, _LAST_PAUSE = 0.25, 5.0


@dataclass(frozen=True, order=True, slots=True)
class _Due:
    at: float
    number: int
    what: Settle = field(compare=False)
    queue: str = field(compare=False)
    message_id: str = field(compare=False)


class Settler(Thread):
    """Settles at once where it can, later where it must.

    What was not told when the process ends stays in its ack set: it is delivered again, and the
    database knows that it was done. The backlog is capped by `Slots`, which stops fetching.
    """

    def __init__(self, *, scripts: Scripts, slots: Slots, worker_id: str) -> None:
        super().__init__(name="settler", daemon=True)
        self._scripts = scripts
        self._slots = slots
        self._worker_id = worker_id
        self._changed = Condition()
        self._backlog: list[_Due] = []
        self._numbers = itertools.count()
        self._hurry = False
        self._stopping = False
        self.failure: BaseException | None = None

    def settle(
        self,
        what: Settle,
        queue: str,
        message_id: str,
        *,
        delay: float = 0.0,
        nudge: bool = False,
    ) -> None:
        """Settle a released message, now or after `delay` seconds; never raises."""
        if delay <= 0 or self._hurry:
            try:
                self._tell(what, queue, message_id, nudge=nudge)
            except BrokerAwayError as exc:
                log.warning("settle_postponed", message_id=message_id, error=str(exc))
            else:
                return
        elif nudge:
            self._nudge()
        with self._changed:
            at = time.monotonic() + delay
            due = _Due(at, next(self._numbers), what, queue, message_id)
            heapq.heappush(self._backlog, due)
            self._changed.notify_all()

    def hurry(self) -> None:
        """Let nothing wait for its delay any more: the process is going to end."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread; join it afterwards."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def run(self) -> None:
        try:
            self._run()
        except Exception as exc:  # told by the worker's health
            self.failure = exc
            log.critical("settler_died", exc_info=exc)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while (due := self._next()) is not None:
            try:
                self._tell(due.what, due.queue, due.message_id, nudge=False)
                pause = _FIRST_PAUSE
            except BrokerAwayError:
                with self._changed:
                    heapq.heappush(self._backlog, due)
                    self._changed.wait_for(lambda: self._stopping, pause)
                pause = min(pause * 2, _LAST_PAUSE)

    def _next(self) -> _Due | None:
        """Wait for the next one that is due; None when the thread is to end."""
        with self._changed:
            while not self._stopping:
                if self._backlog:
                    left = self._backlog[0].at - time.monotonic()
                    if left <= 0 or self._hurry:
                        return heapq.heappop(self._backlog)
                    self._changed.wait(left)
                else:
                    self._changed.wait()
            return None

    def _nudge(self) -> None:
        """A slot is free although its message is not settled yet."""
        try:
            self._scripts.nudge(self._worker_id)
        except BrokerAwayError as exc:
            log.warning("nudge_failed", error=str(exc))  # then the wait ends by itself

    def _tell(self, what: Settle, queue: str, message_id: str, *, nudge: bool) -> None:
        self._scripts.settle(self._worker_id, what, queue, message_id, nudge=nudge)
        self._slots.settled(message_id)
