"""One process' worker: dramatiq's worker threads, fed by one consumer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import Empty, PriorityQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import structlog
from dramatiq.worker import ConsumerThread, WorkerThread, _WorkQueueItem

from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.lanes import LANES, RESERVED_FROM, Actor, Lane, queue_name
from sluice_core.runtime.broker.consumer import Consumer, FetchRules
from sluice_core.runtime.broker.keeper import Keeper
from sluice_core.runtime.broker.outcomes import Outcomes
from sluice_core.runtime.broker.scripts import Settle
from sluice_core.runtime.broker.settler import Settler
from sluice_core.runtime.broker.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from sluice_core.runtime.broker.broker import SluiceBroker

log = structlog.get_logger(__name__)

#: Milliseconds that an idle worker thread waits for work before it looks whether it is to stop.
_THREAD_TIMEOUT_MS = 1000

#: Seconds that runs are given to hand back, once told: a child's end takes a second of it.
HAND_BACK = 5.0

#: Seconds between looks whether a drain is to hurry.
_HURRY_POLL = 0.2

#: Seconds that messages which ended are given to be told to the server at shutdown.
_SETTLE_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a worker can do its work; a store that is away does not make it unhealthy."""

    ok: bool
    reason: str = ""


class StageWorker:
    """Consumes the lanes of one actor with a fixed number of threads.

    Life: `start`, then `drain` (once), then `stop`. Errors of the actor never end it: a run that
    raised has written no outcome, so its message comes again after `requeue_pause`.

    Args:
        broker: of this worker alone, with the actor declared on it.
        actor: whose messages to take.
        threads: slots, one message each.
        waker: client for blocking waits (`connect_waker`).
        on_dead_letter: told the raw message and the reason when it can't be delivered; when it
            raises, the message comes again.
        lanes: highest first.
        pause_reason: says why nothing may be fetched now (e.g. the database is away), or None.
        paused: queues of which nothing is to be fetched; must neither block nor raise.
        drain_event: set when the runs are to hand back; the same that runs were given.
        worker_id: unique per start of a process.
        requeue_pause: seconds until a message whose run raised is queued again.

    """

    def __init__(
        self,
        broker: SluiceBroker,
        actor: Actor,
        *,
        threads: int,
        waker: redis.Redis,
        on_dead_letter: Callable[[bytes, str], None],
        lanes: Sequence[Lane] = LANES,
        pause_reason: Callable[[], str | None] = lambda: None,
        paused: Callable[[], frozenset[str]] = frozenset,
        drain_event: Event | None = None,
        worker_id: str | None = None,
        rules: FetchRules | None = None,
        requeue_pause: float = 2.0,
    ) -> None:
        self.broker = broker
        self.worker_id = worker_id or str(uuid4())
        self.drain_event = drain_event or Event()
        self._queues = tuple(queue_name(actor, lane) for lane in lanes)
        keep_one = any(lane not in RESERVED_FROM for lane in lanes)
        self._slots = Slots(threads, keep_one=keep_one, max_unsettled=10 * threads + 100)
        self._work_queue: PriorityQueue[_WorkQueueItem] = PriorityQueue()
        self._fetching = fetching = Lock()
        self._settler = Settler(scripts=broker.scripts, slots=self._slots, worker_id=self.worker_id)
        self._consumer = Consumer(
            broker=broker,
            waker=waker,
            worker_id=self.worker_id,
            actor=actor,
            lanes=lanes,
            slots=self._slots,
            settler=self._settler,
            work_queue=self._work_queue,
            fetching=fetching,
            paused=paused,
            on_dead_letter=on_dead_letter,
            rules=rules or FetchRules(),
        )
        self._keeper = Keeper(
            scripts=broker.scripts,
            worker_id=self.worker_id,
            queues=self._queues,
            slots=self._slots,
            fetching=fetching,
            pause_reason=pause_reason,
            paused=paused,
        )
        outcomes = Outcomes(slots=self._slots, settler=self._settler, pause=requeue_pause)
        self.threads = [self._thread(broker, outcomes) for _ in range(threads)]

    def start(self) -> None:
        """Begin to take messages; returns at once."""
        self._keeper.pause_if_asked()
        self.broker.emit_after("process_boot")
        self.broker.emit_before("worker_boot", self)
        for thread in (*self.threads, self._settler, self._keeper, self._consumer):
            thread.start()
        self.broker.emit_after("worker_boot", self)

    @property
    def running(self) -> frozenset[str]:
        """Ids of the messages that take a slot now."""
        return self._slots.held()

    def hold(self, why: str) -> bool:
        """Take nothing more while what runs goes on; True when that is news."""
        news = self._slots.pause(why)
        if news:
            self._nudge()
        return news

    @property
    def is_paused(self) -> bool:
        """Whether it takes nothing more, for whatever reason."""
        return self._slots.is_paused()

    def is_quiet(self) -> bool:
        """Whether nothing runs, and nothing will before the pause ends."""
        if not self._slots.is_paused() or not self._fetching.acquire(blocking=False):
            return False
        try:
            # No fetch is under way, and the next one sees the pause first.
            return self._slots.is_paused() and not self._slots.held()
        finally:
            self._fetching.release()

    @property
    def last_beat_age(self) -> float | None:
        """Seconds since Redis took a sign of life; None before the first."""
        return self._keeper.last_beat_age

    def healthy(self) -> Health:
        """Whether all threads live and the keeper moves; busy or cut off is healthy."""
        dead = sum(not thread.is_alive() for thread in self.threads)
        if dead:
            return Health(ok=False, reason=f"{dead} of {len(self.threads)} worker threads died")
        for thread in (self._consumer, self._settler, self._keeper):
            if not thread.is_alive():
                return Health(ok=False, reason=f"the {thread.name} thread died")
        if self._keeper.is_stuck:
            return Health(ok=False, reason="the keeper is stuck")
        return Health(ok=True)

    def drain(
        self,
        grace_seconds: float,
        *,
        hurry: Callable[[], bool] = lambda: False,
        hand_back_seconds: float = HAND_BACK,
    ) -> bool:
        """Take nothing more, return what was not begun, and let the rest end.

        What has not ended by itself when the grace is over is told to hand back.

        Args:
            grace_seconds: for runs to finish.
            hurry: asked a few times a second; true ends the grace.
            hand_back_seconds: for runs to hand back.

        Returns:
            True when idle, False when something still runs; it then stays in the ack set, and is
            returned once the process gives no sign of life.

        """
        self._slots.pause("draining")
        # First of all, so that a message which is being handed over now is not begun.
        self.broker.emit_before("worker_shutdown", self)
        self._nudge()
        self._settler.hurry()
        self._await_fetch()
        self._return_unstarted()
        deadline = time.monotonic() + grace_seconds
        while not self._slots.wait_until_free(0.0) and not hurry():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._slots.wait_until_free(min(left, _HURRY_POLL))
        self.drain_event.set()
        idle = self._slots.wait_until_free(hand_back_seconds)
        self._slots.wait_until_settled(_SETTLE_GRACE)
        return idle

    def stop(self, timeout: float = 5.0) -> None:
        """End all threads that can be ended within `timeout` seconds, and leave."""
        deadline = time.monotonic() + timeout
        self._slots.pause("draining")
        self._consumer.stop()
        self._nudge()
        for thread in self.threads:
            thread.stop()
        self._join([self._consumer, *self.threads], deadline)
        self._return_unstarted()
        self._settler.stop()
        self._keeper.stop()
        self._join([self._settler, self._keeper], deadline)
        self._leave()
        self.broker.emit_after("worker_shutdown", self)

    def _thread(self, broker: SluiceBroker, outcomes: Outcomes) -> WorkerThread:
        # All that a worker thread asks of a "consumer" is to post-process its messages.
        consumers = dict.fromkeys(self._queues, cast("ConsumerThread", outcomes))
        return WorkerThread(
            broker=broker,
            consumers=consumers,
            work_queue=self._work_queue,
            worker_timeout=_THREAD_TIMEOUT_MS,
        )

    def _await_fetch(self) -> None:
        """What the server gave to a fetch under way is held once that fetch is over."""
        if self._fetching.acquire(timeout=_SETTLE_GRACE):
            self._fetching.release()

    def _return_unstarted(self) -> None:
        while True:
            try:
                message = self._work_queue.get_nowait().message
            except Empty:
                return
            self._work_queue.task_done()
            message_id = message.options["redis_message_id"]
            self._slots.release(message_id)
            self._settler.settle(Settle.FRONT, message.queue_name, message_id)

    def _nudge(self) -> None:
        try:
            self.broker.scripts.nudge(self.worker_id, self._queues)
        except BrokerAwayError as exc:
            log.warning("nudge_failed", error=str(exc))  # then the wait ends by itself

    def _leave(self) -> None:
        try:
            self.broker.scripts.leave(self.worker_id, self._queues)
        except BrokerAwayError as exc:
            log.warning("leave_failed", error=str(exc))  # its heartbeat gets too old by itself

    @staticmethod
    def _join(threads: Sequence[Thread], deadline: float) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
