"""From outbox rows to the broker, for whatever its own writer did not publish."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import redis
import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import outbox
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.publisher import to_message

log = structlog.get_logger(__name__)

#: Seconds that a writer is given to publish its own rows.
WRITER_FIRST = 2.0
#: Seconds after which a published, unclaimed message is looked for.
LOST_AFTER = 60.0
BATCH = 500


def relay(
    engine: sa.Engine, broker: SluiceBroker, *, now: float, writer_first: float = WRITER_FIRST
) -> int:
    """Publish due rows, oldest first; returns how many.

    A row is marked only after the broker took it. A crash in between publishes it again under the
    same id, which the broker takes as the same message, and a claim only once.

    Raises:
        BrokerAwayError: nothing was marked.
        StoreAwayError: some may be published and not marked.

    """
    if engine.dialect.name == "postgresql":
        # The rows stay locked meanwhile, and other relays skip them.
        with write(engine) as connection:
            rows = outbox.take_due(connection, now=now, older_than=writer_first, limit=BATCH)
            broker.publish_many([to_message(row) for row in rows])
            outbox.mark_published(connection, [row.id for row in rows], now)
            return len(rows)
    # SQLite has one write lock for all: never hold it while waiting for Redis.
    with read(engine) as connection:
        rows = outbox.take_due(connection, now=now, older_than=writer_first, limit=BATCH)
    if rows:
        broker.publish_many([to_message(row) for row in rows])
        with write(engine) as connection:
            outbox.mark_published(connection, [row.id for row in rows], now)
    return len(rows)


def republish_lost(
    engine: sa.Engine, broker: SluiceBroker, *, published_before: float, now: float
) -> int:
    """Publish again what was published before a time, is unclaimed and is in no queue.

    Returns:
        how many messages were lost.

    """
    after_id, lost = "", 0
    while True:
        with read(engine) as connection:
            rows = outbox.unclaimed(
                connection, published_before=published_before, after_id=after_id, limit=BATCH
            )
        if not rows:
            return lost
        after_id = rows[-1].id
        absent = broker.absent([(row.queue, row.id) for row in rows])
        if absent:
            broker.publish_many([to_message(row) for row in rows if row.id in absent])
            with write(engine) as connection:
                outbox.mark_published(connection, sorted(absent), now)
            lost += len(absent)


class EmptiedRedis:
    """Notices that Redis lost its memory: a mark that we left is gone.

    Args:
        clients: one per logical database to watch.

    """

    def __init__(self, *clients: redis.Redis, new_mark: Callable[[], str] | None = None) -> None:
        self._clients = clients
        self._new_mark = new_mark or (lambda: uuid.uuid4().hex)

    def check(self) -> bool:
        """True once for each time that a mark was missing.

        Raises:
            BrokerAwayError: nobody can tell now.

        """
        emptied = False
        with call():
            for client in self._clients:
                # SET NX answers whether the mark was missing, in one step for all schedulers.
                emptied |= bool(client.set(keys.MARK, self._new_mark(), nx=True))
        return emptied
