"""The broker: dramatiq's, with our own way in and our own readings.

A process that only publishes or reads needs nothing else: no actors, no threads, no heartbeat.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dramatiq
from dramatiq.message import Message

from sluice_core.adapters.redis import call
from sluice_core.domain.explain import Sight
from sluice_core.runtime.broker.names import (
    ALL_QUEUES,
    PAUSED,
    messages_key,
)
from sluice_core.runtime.broker.scripts import Scripts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import redis

#: Messages per script call: long scripts would stall every other client.
PUBLISH_BATCH = 200

#: Seconds without a sign of life after which a worker's messages go back.
DEAD_AFTER = 15.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to publish."""

    #: The outbox row's id.
    message_id: str
    #: Name of the actor, e.g. `download`.
    actor: str
    #: One of the actor's queues, e.g. `download.high`.
    queue: str
    #: Ids only.
    kwargs: Mapping[str, str | int]
    #: Owners take turns in their queue; "" waits in plain order. One queue, one way.
    owner: str = ""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at one moment."""

    waiting: int
    in_flight: int
    #: Seconds since the next message was first published; None when none waits.
    oldest_age: float | None


class SluiceBroker(dramatiq.Broker):
    """Publishes, and reads what waits and what runs; `StageWorker` consumes.

    No delayed messages and no dead letters: a retry, a due time and a dead letter are rows in the
    database. All methods raise `BrokerAwayError` when Redis can't answer.

    Args:
        client: of the broker's own database, answering bytes (`connect_broker`).
        middleware: outermost first; a time limit must be the last.

    """

    def __init__(
        self, client: redis.Redis, *, middleware: Iterable[dramatiq.Middleware] = ()
    ) -> None:
        self.client = client
        self.scripts = Scripts(client)
        super().__init__(middleware=list(middleware))

    def publish(
        self, message_id: str, actor: str, queue: str, kwargs: Mapping[str, str | int]
    ) -> bool:
        """Queue one message; False when the id already waits or runs, which is no error."""
        return self.publish_many([Outgoing(message_id, actor, queue, kwargs)])[0]

    def publish_many(self, messages: Sequence[Outgoing]) -> list[bool]:
        """`publish` for many, in order; when it raises, some may have been queued."""
        fresh: list[bool] = []
        for start in range(0, len(messages), PUBLISH_BATCH):
            batch = messages[start : start + PUBLISH_BATCH]
            fresh += self.scripts.publish(
                (m.queue, m.message_id, _encode(m), m.owner) for m in batch
            )
        return fresh

    def enqueue(self, message: Message[object], *, delay: int | None = None) -> Message[object]:
        """Dramatiq's own door, kept for its actors' `send`; a delay is refused.

        Raises:
            ValueError: the message is to be delayed, or has positional arguments.

        """
        if delay is not None or message.options.get("eta") is not None:
            raise ValueError("the broker delays nothing: a due time belongs into the outbox")
        if message.args:
            raise ValueError("messages carry named ids only")
        self.publish(message.message_id, message.actor_name, message.queue_name, message.kwargs)
        return message

    def declare_queue(self, queue_name: str) -> None:
        """Make a queue known to the middleware; no delay queue comes with it."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def stats(self, queues: Sequence[str]) -> dict[str, QueueStats]:
        """Depth and age of each queue, all at one moment."""
        rows = self.scripts.stats(queues)
        return {
            queue: QueueStats(waiting, in_flight, age / 1000 if age >= 0 else None)
            for queue, (waiting, in_flight, age) in zip(queues, rows, strict=True)
        }

    def waiting(self, queues: Sequence[str]) -> dict[str, int]:
        """How many messages wait per queue."""
        return {queue: stats.waiting for queue, stats in self.stats(queues).items()}

    def in_flight(self, queues: Sequence[str]) -> dict[str, int]:
        """How many messages are with workers per queue."""
        return {queue: stats.in_flight for queue, stats in self.stats(queues).items()}

    def absent(self, entries: Sequence[tuple[str, str]]) -> frozenset[str]:
        """Ids of those (queue, id) that neither wait nor are with a worker.

        One look-up each, however many wait: to find one in its list, Redis walks through it.
        """
        with call(), self.client.pipeline(transaction=False) as pipe:
            for queue, message_id in entries:
                pipe.hexists(messages_key(queue), message_id)
            known = pipe.execute()
        return frozenset(
            message_id
            for (_, message_id), is_known in zip(entries, known, strict=True)
            if not is_known
        )

    def sights(self, entries: Sequence[tuple[str, str]]) -> list[Sight]:
        """All that is known of each (queue, id), at one moment; for few: it walks their lists."""
        return [
            Sight(
                place=place,
                before=before if before >= 0 else None,
                handed_out=handed_out,
                worker=worker or None,
            )
            for place, before, handed_out, worker in self.scripts.sight(entries)
        ]

    def remove(self, queue: str, message_id: str) -> bool:
        """Take a waiting message away; False when it does not wait (any more)."""
        return self.scripts.remove(queue, message_id)

    def pause(self, *queues: str) -> None:
        """Hand out nothing of queues from now on; the database must say so too."""
        self.scripts.pause(queues)

    def resume(self, *queues: str) -> None:
        """Hand out again, and wake who waits for it."""
        self.scripts.resume(queues)

    def paused(self) -> frozenset[str]:
        """Queues of which nothing is handed out, as far as Redis knows."""
        with call():
            found = self.client.smembers(PAUSED)
        return frozenset(str(queue, "utf-8") for queue in found)  # type: ignore[arg-type]  # bytes

    def requeue_dead(
        self, max_age: float = DEAD_AFTER, *, queues: Sequence[str] = ALL_QUEUES
    ) -> int:
        """Return what dead workers held to the front of its queues; any process may call this.

        Args:
            max_age: seconds of the server's clock without a sign of life.
            queues: where to look.

        """
        return self.scripts.reap(round(max_age * 1000), queues)


def _encode(message: Outgoing) -> bytes:
    return Message(
        queue_name=message.queue,
        actor_name=message.actor,
        args=(),
        kwargs=dict(message.kwargs),
        options={},
        message_id=message.message_id,
        # For people who look at it; nothing is decided by a publisher's clock.
        message_timestamp=int(time.time() * 1000),
    ).encode()
