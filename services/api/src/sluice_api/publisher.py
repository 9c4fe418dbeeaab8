"""Sends what was just committed: messages to the broker, events to whoever watches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import gevent
import redis
import structlog

from sluice_core.adapters import events, tracing
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.job import Job
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.publisher import publish_now

log = structlog.get_logger(__name__)

#: Sets of rows that may wait here; beyond, the relay sends them from the outbox.
MAX_WAITING = 10_000
#: Sets that go to Redis in one piece.
MAX_SETS = 20
#: Events of one commit; streams find the rest of a large batch in the database by themselves.
MAX_EVENTS = 100
#: Seconds from one piece to the next, so that a rush goes in few: a lone one never waits.
APART = 0.01
#: Seconds between tries while Redis is away.
PAUSE = 2.0


class Publisher:
    """Works beside the requests, so that none waits for Redis.

    Nothing depends on it: the outbox keeps what it can't send, and streams of events compare
    themselves with the database.

    Args:
        broker: takes the messages.
        signals: takes the events.
        failpoints: of tests.
        clock: Unix seconds, as the rows were written.

    """

    def __init__(
        self,
        broker: SluiceBroker,
        signals: redis.Redis,
        *,
        failpoints: Failpoints,
        clock: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._failpoints = failpoints
        self._clock = clock
        self._signals = signals
        self._waiting: deque[tuple[tuple[OutboxRow, ...], tuple[Job, ...]]] = deque(
            maxlen=MAX_WAITING
        )
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self._paused_until = 0.0
        self._next = 0.0

    def send(self, rows: Sequence[OutboxRow], jobs: Sequence[Job]) -> None:
        """Publish rows and tell of jobs soon; to be called after the commit."""
        self._failpoints.hit("api.after_commit")
        if time.monotonic() < self._paused_until:
            return
        self._waiting.append((tuple(rows), tuple(jobs[:MAX_EVENTS])))
        if self._greenlet is None or self._greenlet.dead:
            self._greenlet = gevent.spawn(self._work)

    def flush(self, timeout: float) -> bool:
        """Wait until all is sent; False when that took too long."""
        if self._greenlet is not None:
            self._greenlet.join(timeout)
        return not self._waiting

    def close(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill(timeout=1)

    def _work(self) -> None:
        # Begun by one request, and at work for all that follow.
        tracing.leave()
        while self._waiting:
            # What came in meanwhile, and shortly after, goes in one piece.
            gevent.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + APART
            sets = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_SETS))]
            publish_now(self._broker, [row for rows, _ in sets for row in rows], now=self._clock())
            self._failpoints.hit("api.after_publish")
            told = [events.event_of(job, "job") for _, jobs in sets for job in jobs]
            try:
                events.emit_many(self._signals, told)
            except BrokerAwayError as exc:
                log.warning("events_dropped", waiting=len(self._waiting), error=str(exc))
                self._waiting.clear()
                self._paused_until = time.monotonic() + PAUSE
