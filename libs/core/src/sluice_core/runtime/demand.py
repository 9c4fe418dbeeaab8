"""What a pool has to do: the figure that the autoscaler, `GET /v1/demand` and KEDA scale by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.figures import QueueFigures, Read, read_queues


@dataclass(frozen=True, slots=True)
class Demand:
    """Messages that want a slot or have one."""

    #: In Redis, fetched by nobody; paused lanes left out.
    waiting: int
    #: Due by the database, and not in Redis; paused lanes left out.
    due: int
    #: With a worker.
    running: int

    @property
    def total(self) -> int:
        return self.waiting + self.due + self.running


def demand_of(figures: Mapping[str, QueueFigures], queues: Iterable[str]) -> Demand:
    """The demand of some queues, out of a reading that covers them."""
    of_pool = [figures[queue] for queue in queues]
    taken = [queue for queue in of_pool if not queue.paused]
    waiting, due = sum(q.waiting for q in taken), sum(q.due for q in taken)
    total = sum(q.demand for q in of_pool)
    return Demand(waiting=waiting, due=due, running=total - waiting - due)


def read_demand(broker: SluiceBroker, read: Read, queues: Sequence[str], *, now: float) -> Demand:
    """The demand of some queues.

    Args:
        broker: to ask Redis.
        read: to ask the database, see `read_queues`.
        queues: of the pool.
        now: Unix seconds.

    Raises:
        BrokerAwayError: Redis does not answer.
        StoreAwayError: the database does not answer.

    """
    return demand_of(read_queues(broker, read, now=now, queues=queues), queues)
