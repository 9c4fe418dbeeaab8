"""The one thread of a process that fetches, for idle threads only."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import structlog
from dramatiq.broker import MessageProxy
from dramatiq.errors import ActorNotFound, ConnectionClosed, DecodeError
from dramatiq.worker import _WorkQueueItem

from sluice_core.adapters.redis import call
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.lanes import RESERVED_FROM, Actor, Lane, queue_name
from sluice_core.runtime.broker.incoming import check_call, decode
from sluice_core.runtime.broker.names import private_wake_key, wake_key
from sluice_core.runtime.broker.scripts import Settle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from queue import PriorityQueue

    import redis

    from sluice_core.runtime.broker.broker import SluiceBroker
    from sluice_core.runtime.broker.settler import Settler
    from sluice_core.runtime.broker.slots import Room, Slots

log = structlog.get_logger(__name__)

#: Seconds that a wait at the server lasts at most; then a fetch looks again, in case a token was
#: lost with the worker that took it.
BLOCK_SECONDS = 5.0

#: Seconds until another try to reach the server, first and last.
_FIRST_PAUSE, _LAST_PAUSE = 0.25, 3.0


@dataclass(frozen=True, slots=True)
class FetchRules:
    """How slots are shared among lanes."""

    #: Seconds after which a lane whose next message still waits counts as starved.
    starve_after: float = 60.0
    #: A starved lane gets one slot in so many.
    starve_every: int = 10


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one worker as queues, highest first."""

    turns: str
    queues: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, actor: Actor, lanes: Sequence[Lane]) -> _Lanes:
        return cls(
            turns=actor.value,
            queues=tuple((queue_name(actor, lane), lane in RESERVED_FROM) for lane in lanes),
        )

    def without(self, queues: Collection[str]) -> _Lanes:
        return _Lanes(self.turns, tuple(lane for lane in self.queues if lane[0] not in queues))

    def wake_keys(self, worker_id: str, *, reserved: bool) -> list[str]:
        wanted = [queue for queue, is_reserved in self.queues if reserved or not is_reserved]
        return [private_wake_key(worker_id), *map(wake_key, wanted)]


class Consumer(Thread):
    """Fetches over all lanes in one atomic step, then waits at the server to be woken.

    Args:
        waker: client of its own, as it blocks; its socket timeout must exceed `BLOCK_SECONDS`.
        fetching: held during each fetch, so that the keeper never mistakes a message under way
            for a lost one.
        paused: queues that are known to be paused; the server knows too, unless it was emptied.
        on_dead_letter: called with the raw message and a reason for what can't be delivered.

    """

    def __init__(
        self,
        *,
        broker: SluiceBroker,
        waker: redis.Redis,
        worker_id: str,
        actor: Actor,
        lanes: Sequence[Lane],
        slots: Slots,
        settler: Settler,
        work_queue: PriorityQueue[_WorkQueueItem],
        fetching: Lock,
        paused: Callable[[], frozenset[str]],
        on_dead_letter: Callable[[bytes, str], None],
        rules: FetchRules,
    ) -> None:
        super().__init__(name="consumer", daemon=True)
        self._broker = broker
        self._waker = waker
        self._worker_id = worker_id
        self._lanes = _Lanes.of(actor, lanes)
        self._reserved = {queue for queue, reserved in self._lanes.queues if reserved}
        self._slots = slots
        self._settler = settler
        self._work_queue = work_queue
        self._fetching = fetching
        self._paused = paused
        self._on_dead_letter = on_dead_letter
        self._rules = rules
        self._stopping = Event()

    def stop(self) -> None:
        """End the thread; the worker pauses its slots first, which ends a wait at the server."""
        self._stopping.set()

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                self._step()
            except ConnectionClosed as exc:
                if pause == _FIRST_PAUSE:
                    log.warning("consumer_lost_the_broker", error=str(exc))
            except Exception:  # the next step may work; the log says what did not
                log.critical("consumer_failed", exc_info=True)
            else:
                if pause != _FIRST_PAUSE:
                    log.info("consumer_is_back")
                pause = _FIRST_PAUSE
                continue
            self._stopping.wait(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    def _step(self) -> None:
        room = self._slots.wait_for_room(timeout=1.0)
        if room is None:
            return
        try:
            reserved_taken, taken = self._fetch(room)
            if taken < room.idle:
                # Every lane that was open is empty now; one that was not must not wake us.
                self._block(room, reserved=room.reserved - reserved_taken > 0)
        except BrokerAwayError as exc:
            raise ConnectionClosed(str(exc)) from exc  # type: ignore[no-untyped-call]

    def _fetch(self, room: Room) -> tuple[int, int]:
        """Fetch and hand over; (how many from reserved lanes, how many in all)."""
        with self._fetching:
            if self._slots.is_paused():
                return 0, room.idle
            rows = self._broker.scripts.fetch(
                self._worker_id,
                idle=room.idle,
                room=room.reserved,
                starve_ms=round(self._rules.starve_after * 1000),
                starve_every=self._rules.starve_every,
                turns=self._lanes.turns,
                lanes=self._open_lanes().queues,
            )
            for queue, message_id, _, _ in rows:
                self._slots.hold(message_id, reserved=queue in self._reserved)
        for queue, message_id, data, tries in rows:
            self._hand_over(queue, message_id, data, tries)
        return sum(row[0] in self._reserved for row in rows), len(rows)

    def _block(self, room: Room, *, reserved: bool) -> None:
        if not self._slots.try_block(room, narrow=not reserved):
            return
        try:
            with call():
                token = self._waker.blpop(
                    self._open_lanes().wake_keys(self._worker_id, reserved=reserved),
                    timeout=BLOCK_SECONDS,
                )
        finally:
            self._slots.unblock()
        if token and self._slots.is_paused():
            self._pass_on(token[0])

    def _open_lanes(self) -> _Lanes:
        paused = self._paused()
        return self._lanes.without(paused) if paused else self._lanes

    def _pass_on(self, key: bytes | str) -> None:
        """A token that came while paused belongs to another worker."""
        if key != private_wake_key(self._worker_id).encode():
            with call():
                self._waker.rpush(key, "1")

    def _hand_over(self, queue: str, message_id: str, data: bytes, tries: int) -> None:
        try:
            message = decode(queue, message_id, data, tries)
            actor = self._broker.get_actor(message.actor_name)
            check_call(actor, message, data)
        except DecodeError as exc:
            self._bury(queue, message_id, data, f"unreadable message: {exc}")
        except ActorNotFound:
            self._bury(queue, message_id, data, "no such actor")
        else:
            self._work_queue.put(_WorkQueueItem(actor.priority, MessageProxy(message)))

    def _bury(self, queue: str, message_id: str, data: bytes, reason: str) -> None:
        log.error("undeliverable_message", queue=queue, message_id=message_id, reason=reason)
        try:
            self._on_dead_letter(data, reason)
            what, delay = Settle.ACK, 0.0
        except Exception:  # what is not recorded must not be forgotten: it comes again
            log.exception("dead_letter_not_recorded", queue=queue, message_id=message_id)
            what, delay = Settle.BACK, _LAST_PAUSE
        self._slots.release(message_id)
        self._settler.settle(what, queue, message_id, delay=delay)
