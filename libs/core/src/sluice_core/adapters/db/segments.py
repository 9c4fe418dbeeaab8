"""Segments of one encode, shared among slots: who encodes which, and what is there.

The job's own transcode run offers them, takes them as everybody does, and joins them. A segment
belongs to the attempt that its row names, for as long as that attempt is open: taking it is a
compare-and-set, and each later write is conditional on it. Rows outlive the run that offered them,
so that those who help go on while another run takes the job over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import outbox
from sluice_core.adapters.db.claims import Claim
from sluice_core.adapters.db.schema import attempts, jobs, segments
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import ACTIVE

_ACTIVE = [s.value for s in ACTIVE]


@dataclass(frozen=True, slots=True)
class Shared:
    """One segment."""

    number: int
    #: Pictures in it, and those that are encoded.
    frames: int
    encoded: int
    #: The attempt that it belongs to, whether that one is open, and its beat.
    holder: str | None
    held: bool
    beat: int
    done: bool
    #: Where it is stored.
    key: str | None


def offer(
    connection: sa.Connection,
    run: Claim,
    *,
    fingerprint: str,
    missing: Mapping[int, int],
    helpers: int,
    now: float,
) -> list[outbox.OutboxRow]:
    """Share what is missing, and ask for help with it.

    What others hold of the same encode stays theirs, and what they stored meanwhile stays done.

    Args:
        connection: of the caller's transaction.
        run: the job's own.
        fingerprint: of the encode.
        missing: number -> pictures.
        helpers: slots that may help at once; fewer are asked for where there is less to do.
        now: Unix seconds.

    Returns:
        the rows to publish.

    Raises:
        StaleRunError: another run owns the job.

    """
    job = run.job
    if _locked(connection, job.id, jobs.c.epoch == job.epoch) is None:
        raise StaleRunError(f"job {job.id} is no longer at epoch {job.epoch}")
    of_job = segments.c.job_id == job.id
    same = sa.and_(segments.c.fingerprint == fingerprint, segments.c.number.in_(missing))
    # Locked first: who holds what is then told by a look that is later than whoever took it.
    connection.execute(sa.select(segments.c.number).where(of_job).with_for_update())
    connection.execute(sa.delete(segments).where(of_job, ~same))
    connection.execute(
        sa.update(segments)
        .where(of_job, segments.c.key.is_(None), ~_held())
        .values(holder=None, encoded=0, done=False)
    )
    known = set(connection.execute(sa.select(segments.c.number).where(of_job)).scalars())
    new = [
        {"job_id": job.id, "number": number, "fingerprint": fingerprint, "frames": frames}
        for number, frames in missing.items()
        if number not in known
    ]
    if new:
        connection.execute(sa.insert(segments), new)
    return [ask(connection, job, now=now) for _ in range(places(connection, job, helpers=helpers))]


def offer_places(
    connection: sa.Connection, run: Claim, *, helpers: int, now: float
) -> list[outbox.OutboxRow]:
    """Ask anew in place of those who are gone; nothing when another run owns the job.

    Args:
        connection: of the caller's transaction.
        run: the job's own.
        helpers: as for `offer`.
        now: Unix seconds.

    Returns:
        the rows to publish.

    """
    job = run.job
    if _locked(connection, job.id, jobs.c.epoch == job.epoch) is None:
        return []
    return [ask(connection, job, now=now) for _ in range(places(connection, job, helpers=helpers))]


def places(connection: sa.Connection, job: Job, *, helpers: int) -> int:
    """How many more slots may help; below 1 none.

    Whoever left no segment is not replaced: what may bring workers down costs so many at most, and
    all others are no more than there are segments.
    """
    # One is for the run itself.
    wanted = min(helpers - _fruitless(connection, job), free(connection, job.id) - 1)
    return wanted - _helping(connection, job.id)


def ask(connection: sa.Connection, job: Job, *, now: float) -> outbox.OutboxRow:
    """Ask a slot for help; in the bulk lane, so that everything else of the pool goes first."""
    return outbox.add(
        connection,
        job_id=job.id,
        actor=Actor.HELP,
        lane=Lane.BULK,
        epoch=job.epoch,
        now=now,
        traceparent=job.traceparent,
        owner=job.owner,
    )


def free(connection: sa.Connection, job_id: str) -> int:
    """How many segments nobody encodes."""
    query = sa.select(sa.func.count()).select_from(segments).where(*_free(job_id))
    return connection.execute(query).scalar_one()


def take(
    connection: sa.Connection, job_id: str, attempt_id: str, *, fingerprint: str
) -> int | None:
    """The first segment that nobody encodes, for this attempt; None when there is none."""
    first = (
        sa.select(segments.c.number, segments.c.holder)
        .where(*_free(job_id), segments.c.fingerprint == fingerprint, _is_open(attempt_id))
        .order_by(segments.c.number)
        .limit(1)
    )
    # Somebody else may be faster, who is then the row's holder. That alone is compared: whether
    # another table's row is there is not looked at again by who waited for this one.
    while (found := connection.execute(first).first()) is not None:
        taken = (
            sa.update(segments)
            .where(
                segments.c.job_id == job_id,
                segments.c.number == found.number,
                segments.c.fingerprint == fingerprint,
                segments.c.holder.is_not_distinct_from(found.holder),
                ~segments.c.done,
            )
            .values(holder=attempt_id, encoded=0)
        )
        if _written(connection, taken):
            number: int = found.number
            return number
    return None


def take_back(
    connection: sa.Connection, job_id: str, number: int, *, holder: str | None, attempt_id: str
) -> bool:
    """Take a segment from an attempt that gives no sign of life, or whose work is of no use."""
    return _written(
        connection,
        sa.update(segments)
        .where(
            segments.c.job_id == job_id,
            segments.c.number == number,
            segments.c.holder == holder,
            _is_open(attempt_id),
        )
        .values(holder=attempt_id, encoded=0, done=False, key=None),
    )


def report(
    connection: sa.Connection, job_id: str, number: int, *, attempt_id: str, encoded: int
) -> bool:
    """How far a segment is; False when it is no longer this attempt's."""
    return _write(connection, job_id, number, attempt_id, {"encoded": encoded})


def finish(
    connection: sa.Connection, job_id: str, number: int, *, attempt_id: str, key: str | None
) -> bool:
    """A segment is there; False when it is no longer this attempt's."""
    values = {"encoded": segments.c.frames, "done": True, "key": key}
    written = _write(connection, job_id, number, attempt_id, values)
    if written and key is not None:
        stored = sa.update(attempts).where(attempts.c.id == attempt_id)
        connection.execute(stored.values(progressed=True))
    return written


def release(connection: sa.Connection, job_id: str, attempt_id: str) -> None:
    """Leave what an attempt has begun to whoever comes."""
    connection.execute(
        sa.update(segments)
        .where(segments.c.job_id == job_id, segments.c.holder == attempt_id, ~segments.c.done)
        .values(holder=None, encoded=0)
    )


def look(connection: sa.Connection, job_id: str) -> list[Shared]:
    """All segments of a job that are shared, in order."""
    of_holder = sa.and_(attempts.c.id == segments.c.holder, attempts.c.ended_at.is_(None))
    query = (
        sa.select(segments, attempts.c.id.label("open"), attempts.c.beat)
        .outerjoin(attempts, of_holder)
        .where(segments.c.job_id == job_id)
        .order_by(segments.c.number)
    )
    return [
        Shared(
            number=r.number,
            frames=r.frames,
            encoded=r.encoded,
            holder=r.holder,
            held=r.open is not None,
            beat=r.beat or 0,
            done=r.done,
            key=r.key,
        )
        for r in connection.execute(query)
    ]


def withdraw(connection: sa.Connection, job_id: str) -> list[tuple[str, str]]:
    """Share nothing any more: those who help notice at their next word.

    The job's row is locked by the caller.

    Returns:
        (queue, id) of the orders that nobody took.

    """
    taken_back = connection.execute(
        sa.delete(outbox_table)
        .where(outbox_table.c.job_id == job_id, outbox_table.c.actor == Actor.HELP.value)
        .returning(outbox_table.c.queue, outbox_table.c.id)
    )
    orders = [(row.queue, row.id) for row in taken_back]
    connection.execute(sa.delete(segments).where(segments.c.job_id == job_id))
    return orders


def withdraw_by(connection: sa.Connection, run: Claim) -> list[tuple[str, str]]:
    """`withdraw` by the job's own run; nothing happens when another run owns the job."""
    job = run.job
    if _locked(connection, job.id, jobs.c.epoch == job.epoch) is None:
        return []
    return withdraw(connection, job.id)


def _locked(connection: sa.Connection, job_id: str, *where: sa.ColumnElement[bool]) -> str | None:
    """The id of a job under way, its row locked first, as everywhere."""
    query = sa.select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.status.in_(_ACTIVE), *where)
    return connection.execute(query.with_for_update()).scalar()


def _helping(connection: sa.Connection, job_id: str) -> int:
    """Slots that help a job, or are asked to."""
    of_job = sa.and_(attempts.c.job_id == job_id, attempts.c.stage == Actor.HELP.value)
    query = sa.select(sa.func.count()).select_from(attempts)
    helping = connection.execute(query.where(of_job, attempts.c.ended_at.is_(None))).scalar_one()
    asked = sa.and_(outbox_table.c.job_id == job_id, outbox_table.c.actor == Actor.HELP.value)
    query = sa.select(sa.func.count()).select_from(outbox_table).where(asked)
    return helping + connection.execute(query).scalar_one()


def _fruitless(connection: sa.Connection, job: Job) -> int:
    """Slots that helped this run of the job and left nothing; those that drained are no sign."""
    query = (
        sa.select(sa.func.count())
        .select_from(attempts)
        .where(
            attempts.c.job_id == job.id,
            attempts.c.stage == Actor.HELP.value,
            attempts.c.epoch == job.epoch,
            attempts.c.ended_at.is_not(None),
            attempts.c.outcome != "handed_back",
            ~attempts.c.progressed,
        )
    )
    return connection.execute(query).scalar_one()


def _is_open(attempt_id: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(attempts.c.id == attempt_id, attempts.c.ended_at.is_(None))


def _held() -> sa.ColumnElement[bool]:
    return sa.exists().where(attempts.c.id == segments.c.holder, attempts.c.ended_at.is_(None))


def _free(job_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (segments.c.job_id == job_id, ~segments.c.done, ~_held())


def _write(
    connection: sa.Connection,
    job_id: str,
    number: int,
    attempt_id: str,
    values: Mapping[str, object],
) -> bool:
    return _written(
        connection,
        sa.update(segments)
        .where(
            segments.c.job_id == job_id,
            segments.c.number == number,
            segments.c.holder == attempt_id,
            ~segments.c.done,
            _is_open(attempt_id),
        )
        .values(**values),
    )


def _written(connection: sa.Connection, statement: sa.Update) -> bool:
    return connection.execute(statement).rowcount > 0
