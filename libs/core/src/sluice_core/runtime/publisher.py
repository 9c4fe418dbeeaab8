"""From outbox rows to messages."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.runtime.broker import Outgoing, SluiceBroker

log = structlog.get_logger(__name__)


def to_message(row: OutboxRow) -> Outgoing:
    return Outgoing(row.id, row.actor.value, row.queue, row.args(), owner=row.turn_of)


def publish_now(broker: SluiceBroker, rows: Sequence[OutboxRow], *, now: float) -> None:
    """Publish freshly committed rows that are due; never fails.

    Nothing is marked: a row that is claimed soon is gone by then, and the relay publishes the
    others again under the same id, which the broker takes as the same message.
    """
    due = [to_message(row) for row in rows if row.due_at <= now]
    if not due:
        return
    try:
        broker.publish_many(due)
    except BrokerAwayError as exc:
        log.warning("publish_postponed", messages=len(due), error=str(exc))
