"""The one reading of queues: metrics, `GET /v1/queues`, `GET /v1/demand` and the CLI use it.

    read_queues(broker, read, now=…, queues=ALL_QUEUES) -> dict[str, QueueFigures]

`read` runs a function of a connection in a transaction: `Database.read` of the API, or
`reader(engine)`. It raises `BrokerAwayError` or `StoreAwayError` when either store could not be
read: a failed reading is an error and never a zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from sluice_core.adapters.db import engine as db
from sluice_core.adapters.db import figures
from sluice_core.runtime.broker import QueueStats, SluiceBroker
from sluice_core.runtime.broker.names import ALL_QUEUES

#: Due orders that are looked for in Redis, if there are any.
SAMPLE = 200

_T = TypeVar("_T")


class Read(Protocol):
    """Runs a function of a connection in one transaction."""

    def __call__(self, work: Callable[[sa.Connection], Any], /) -> Any: ...


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue at one moment, out of Redis and the database."""

    #: Published and not fetched.
    waiting: int
    #: With a worker, or fetched by one that died.
    in_flight: int
    #: Runs of messages from this queue that hold their job, by the database.
    running: int
    #: Due and not in Redis: not published yet, or gone with an emptied Redis.
    due: int
    #: Ordered for a later time: retries, `not_before`.
    delayed: int
    #: Dead letters.
    dead: int
    #: Seconds that the longest waiting one of `waiting` and `due` has waited; None when none does.
    oldest_age: float | None
    #: Nothing is fetched from it, by an operator's word.
    paused: bool = False

    @property
    def demand(self) -> int:
        """What wants a slot or has one; a paused lane wants no more."""
        # What is fetched and not claimed yet shows in Redis only; what runs although its message
        # is gone (acknowledged early, an emptied Redis) in the database only.
        held = max(self.in_flight, self.running)
        return held if self.paused else held + self.waiting + self.due


def reader(engine: sa.Engine) -> Read:
    """`read` for a process that calls the database from its own threads."""

    def read(work: Callable[[sa.Connection], _T]) -> _T:
        with db.read(engine) as connection:
            return work(connection)

    return read


def read_queues(
    broker: SluiceBroker, read: Read, *, now: float, queues: Sequence[str] = ALL_QUEUES
) -> dict[str, QueueFigures]:
    """Every queue's figures, by name.

    Args:
        broker: to ask Redis.
        read: to ask the database.
        now: Unix seconds.
        queues: which.

    Raises:
        BrokerAwayError: Redis does not answer.
        StoreAwayError: the database does not answer.

    """
    # Redis first: what the database says was published long ago must then be there.
    stats = broker.stats(queues)
    empty = [queue for queue in queues if not stats[queue].waiting + stats[queue].in_flight]
    rows: dict[str, figures.QueueRows] = read(
        lambda connection: figures.rows_by_queue(connection, not_in_redis=empty, now=now)
    )
    if any(of.due for of in rows.values()):
        rows = _without_those_in_redis(broker, read, rows, now=now)
    return {queue: _merge(stats[queue], rows.get(queue, figures.NO_ROWS)) for queue in queues}


def _without_those_in_redis(
    broker: SluiceBroker, read: Read, rows: dict[str, figures.QueueRows], *, now: float
) -> dict[str, figures.QueueRows]:
    """Due orders that wait in Redis although nobody marked them do not count twice.

    That happens while no scheduler runs. The oldest ones are looked for, and speak for the rest.
    """
    orders: list[tuple[str, str]] = read(
        lambda connection: figures.oldest_unpublished(connection, limit=SAMPLE, now=now)
    )
    gone = broker.absent(orders)
    asked = Counter(queue for queue, _ in orders)
    absent = Counter(queue for queue, order in orders if order in gone)
    return {
        queue: replace(of, due=-(-of.due * absent[queue] // asked[queue])) if asked[queue] else of
        for queue, of in rows.items()
    }


def _merge(stats: QueueStats, rows: figures.QueueRows) -> QueueFigures:
    ages = [age for age in (stats.oldest_age, rows.due_age) if age is not None]
    return QueueFigures(
        waiting=stats.waiting,
        in_flight=stats.in_flight,
        running=rows.running,
        due=rows.due,
        delayed=rows.delayed,
        dead=rows.dead,
        oldest_age=max(ages, default=None),
        paused=rows.paused,
    )
