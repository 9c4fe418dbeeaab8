"""How fast queues fill and empty, by what the last minute left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from sluice_core.adapters.db.schema import attempts, outbox
from sluice_core.adapters.ids import id_at

#: Seconds that are looked back.
WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages of one queue within the window."""

    #: Asked for, and due.
    came: int = 0
    #: Claimed by a run.
    left: int = 0


NONE = Flow()


def by_queue(connection: sa.Connection, *, now: float) -> dict[str, Flow]:
    """Queue -> its flow; queues without any are left out."""
    begin = now - WINDOW
    # Ids sort by time, so the primary key is the index.
    lately = attempts.c.id >= id_at(begin)
    runs = (
        sa.select(
            attempts.c.queue,
            sa.func.count(),
            # Its message's id tells when it was asked for; it is gone with the claim.
            sa.func.sum(sa.case((attempts.c.message_id >= id_at(begin), 1), else_=0)),
        )
        .where(lately)
        .group_by(attempts.c.queue)
    )
    found = {queue: Flow(came, left) for queue, left, came in connection.execute(runs)}
    waiting = (
        sa.select(outbox.c.queue, sa.func.count())
        .where(outbox.c.id >= id_at(begin), outbox.c.due_at <= now)
        .group_by(outbox.c.queue)
    )
    for queue, came in connection.execute(waiting):
        flow = found.get(queue, NONE)
        found[queue] = replace(flow, came=flow.came + came)
    return found
