"""Dead letters that a person sends back to work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import dead_letters, moves, outbox
from sluice_core.adapters.db import jobs as job_store
from sluice_core.domain.lanes import Actor


class NotRequeueableError(Exception):
    """The letter stays; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a letter became."""

    job_id: str
    #: Rows to publish.
    orders: Sequence[outbox.OutboxRow]


def requeue(connection: sa.Connection, letter_id: str, *, now: float) -> Requeued | None:
    """Do again what the letter stands for and remove it; None when there is no such letter.

    A letter of a callback asks for the callback once more, any other one retries its job.

    Raises:
        NotRequeueableError: nothing can be done again; the sentence says why.

    """
    letter = dead_letters.get(connection, letter_id)
    if letter is None:
        return None
    if letter.job_id is None:
        raise NotRequeueableError("The message could not be read, so nothing can run; drop it.")
    job = job_store.get(connection, letter.job_id)
    if job is None:
        raise NotRequeueableError("Its job does not exist any more; drop the letter.")
    if letter.queue.partition(".")[0] == Actor.NOTIFY.value:
        order = outbox.add(
            connection,
            job_id=job.id,
            actor=Actor.NOTIFY,
            lane=job.request.lane,
            epoch=job.epoch,
            now=now,
            traceparent=job.traceparent,
        )
        orders = [order]
    else:
        orders = _retry(connection, job.id, now=now)
    dead_letters.drop(connection, letter_id)
    return Requeued(job.id, orders)


def _retry(connection: sa.Connection, job_id: str, *, now: float) -> list[outbox.OutboxRow]:
    orders = moves.retry(connection, job_id, now=now)
    if orders is None:
        # Read again: another request may just have been faster.
        job = job_store.get(connection, job_id)
        state = job.status.value if job else "deleted"
        raise NotRequeueableError(f"Its job is {state} and can't be retried.")
    return orders
