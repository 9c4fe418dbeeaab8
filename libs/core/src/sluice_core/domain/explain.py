"""Where a job is and what it waits for, in words: from its rows and the places of its messages.

Three kinds of state stay apart here as everywhere: the job's, each run's, and the message's place
in the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_core.domain.job import ChildCounts, Job, words_for
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import TERMINAL, WaitingFor
from sluice_core.domain.view import timestamp

#: Seconds in which the scheduler finds what should be in the broker and is not.
RELAY_WITHIN, REPUBLISH_WITHIN, ADOPT_WITHIN = 3, 75, 45


@dataclass(frozen=True, slots=True)
class Sight:
    """One message in the broker at one moment."""

    #: `waiting`, `in_flight` or `absent`.
    place: str
    #: How many messages of its queue come first, while it waits.
    before: int | None = None
    #: How often it was given to a worker.
    handed_out: int = 0
    #: Who holds it, while it is in flight.
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one stage; times are Unix seconds."""

    stage: str
    number: int
    epoch: int
    worker: str
    message_id: str
    queue: str
    published_at: float | None
    publishes: int
    deliveries: int
    delivered_at: float | None
    claimed_at: float
    beat: int
    progressed: bool
    ended_at: float | None
    outcome: str | None
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A message that no run has claimed yet: a row of the outbox."""

    id: str
    actor: Actor
    queue: str
    epoch: int
    due_at: float
    published_at: float | None
    publishes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything that the database knows of one job."""

    job: Job
    children: ChildCounts = field(default_factory=ChildCounts)
    files: int = 0
    #: Oldest first; of many, the newest.
    attempts: tuple[Attempt, ...] = ()
    #: Runs before the first of `attempts`.
    earlier_attempts: int = 0
    orders: tuple[Order, ...] = ()
    #: Queues of these orders of which nothing is handed out.
    paused: frozenset[str] = frozenset()

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(queue, id) of all that may be in the broker."""
        return [
            *((a.queue, a.message_id) for a in self.attempts),
            *((o.queue, o.id) for o in self.orders),
        ]


def explain(
    standing: Standing,
    sights: Mapping[str, Sight] | None,
    *,
    workers: int | None,
    now: float,
) -> list[str]:
    """Sentences, the most telling first.

    Args:
        standing: what the database knows.
        sights: message id -> where it is; None while Redis does not answer.
        workers: live workers of the job's stage; None while Redis does not answer.
        now: Unix seconds.

    """
    job = standing.job
    said = [f"The job is {job.status.value}: {words_for(job, standing.children)}."]
    said += _ending(standing) if job.status in TERMINAL else _waiting(standing, workers, now)
    if standing.earlier_attempts:
        said.append(f"{standing.earlier_attempts} earlier runs are not shown.")
    said += [_attempt(a, sights, now) for a in standing.attempts]
    said += [_order(o, sights, now) for o in standing.orders]
    if sights is None:
        said.append("Redis does not answer: where the messages are in the broker is not known.")
    return said


def _ending(standing: Standing) -> list[str]:
    job = standing.job
    said = [f"It ended at {timestamp(job.finished_at)} and waits for nothing."]
    if job.error is not None:
        said.append(f"The reason is {job.error.code}: {job.error.message}. {job.error.help}")
    if standing.files:
        until = f" until {timestamp(job.expires_at)}" if job.expires_at else ""
        said.append(f"Its {standing.files} files are kept{until}.")
    if standing.children.total:
        said.append(_children(standing.children))
    return said


def _waiting(standing: Standing, workers: int | None, now: float) -> list[str]:
    job = standing.job
    said = []
    if job.waiting_for is WaitingFor.WORKER:
        said.append(f"It waits for a worker of the stage {job.stage.value}{_pool(workers)}.")
        said += [
            f"The queue {queue} is paused: nothing of it is handed out until it is resumed."
            for queue in sorted(standing.paused)
        ]
    elif job.waiting_for is WaitingFor.RETRY:
        error = f" after {job.error.code}: {job.error.message}" if job.error else ""
        when = _when(job.retry_at, now)
        said.append(f"It waits to try again{error}; try {job.tries + 1} is due {when}.")
    elif job.waiting_for is WaitingFor.TIME:
        said.append(f"It waits for its start time, {_when(job.request.not_before, now)}.")
    elif job.waiting_for is WaitingFor.CHILDREN:
        said.append(f"It waits for its children. {_children(standing.children)}")
    if job.waiting_for is not WaitingFor.CHILDREN and not _is_moving(standing):
        said.append(
            "Nothing runs it and no message asks for a run: the scheduler orders it anew"
            f" within {ADOPT_WITHIN} s."
        )
    return said


def _is_moving(standing: Standing) -> bool:
    orders = (o for o in standing.orders if o.actor is not Actor.HELP)
    running = (a for a in standing.attempts if a.stage != Actor.HELP.value and a.ended_at is None)
    return any(orders) or any(running)


def _pool(workers: int | None) -> str:
    if workers is None:
        return ""
    return f", of which {workers} live" if workers else ", and none of them lives"


def _children(counts: ChildCounts) -> str:
    return (
        f"Of {counts.total} children {counts.active} are under way, {counts.success} done,"
        f" {counts.partial} done in part, {counts.failed} failed and {counts.canceled} canceled."
    )


def _attempt(attempt: Attempt, sights: Mapping[str, Sight] | None, now: float) -> str:
    helps = attempt.stage == Actor.HELP.value
    what = "Help" if helps else "Run"
    of = Actor.TRANSCODE.value if helps else attempt.stage
    words = (
        f"{what} {attempt.number} of {of} (epoch {attempt.epoch}): message"
        f" {attempt.message_id} of {attempt.queue}, published {timestamp(attempt.published_at)},"
        f" delivered {timestamp(attempt.delivered_at)}{_times(attempt.deliveries)},"
        f" claimed {timestamp(attempt.claimed_at)} by {attempt.worker}"
    )
    if attempt.ended_at is not None:
        seconds = attempt.ended_at - attempt.claimed_at
        error = f" with {attempt.error_code}: {attempt.error_message}" if attempt.error_code else ""
        return f"{words}; it ended {attempt.outcome} after {seconds:.1f} s{error}."
    sight = (sights or {}).get(attempt.message_id)
    place = f", its message is {_place(sight)}" if sight else ""
    ago = max(0.0, now - attempt.claimed_at)
    return f"{words}; it runs since {ago:.1f} s, beat {attempt.beat}{place}."


def _order(order: Order, sights: Mapping[str, Sight] | None, now: float) -> str:
    asks = ", which asks for help," if order.actor is Actor.HELP else ""
    what = f"Message {order.id} for {order.queue}{asks}"
    sight = sights.get(order.id) if sights is not None else None
    if order.due_at > now:
        return f"{what} is kept in the database and is due {_when(order.due_at, now)}."
    if sight is None:
        published = timestamp(order.published_at)
        told = f"was published {published}" if published else "is due and asks to be published"
        return f"{what} {told}."
    if sight.place == "absent":
        if order.published_at is None:
            return f"{what} is due; it reaches the broker within {RELAY_WITHIN} s."
        return (
            f"{what} was published {timestamp(order.published_at)} and is in no queue;"
            f" it is published again within {REPUBLISH_WITHIN} s."
        )
    return f"{what} is {_place(sight)}{_times(sight.handed_out)}."


def _place(sight: Sight) -> str:
    if sight.place == "waiting" and sight.before is not None:
        return f"number {sight.before + 1} in its queue"
    if sight.place == "in_flight":
        return f"in flight with {sight.worker or 'a worker that is gone'}"
    return "in no queue"


def _times(handed_out: int) -> str:
    """Said only when it is worth saying."""
    return f" (handed out {handed_out} times)" if handed_out > 1 else ""


def _when(moment: float | None, now: float) -> str:
    if moment is None:
        return "at no known time"
    seconds = moment - now
    distance = f"in {seconds:.0f} s" if seconds > 0 else "now"
    return f"at {timestamp(moment)} ({distance})"
