"""Who leads: a row with a fence and a beat, without comparing anybody's clocks.

The holder raises the beat. Another one that sees fence and beat stand still for long enough, by its
own monotonic clock, takes the row by compare-and-set and raises the fence. Each statement is a
transaction of its own, so it works on SQLite, PostgreSQL and behind a transaction pooler. What the
holder writes it writes under the row's lock with its own fence: a holder that was suspended and
wakes up late writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db.schema import leases
from sluice_core.adapters.db.upsert import insert_or_ignore

#: Name of the lease whose holder fires schedules.
SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class Lease:
    """The row at one moment."""

    name: str
    #: Empty when it was given back.
    holder: str
    fence: int
    beat: int


def look(connection: sa.Connection, name: str) -> Lease:
    """The row as it is; one that is not there looks like one given back."""
    row = connection.execute(sa.select(leases).where(leases.c.name == name)).first()
    return Lease(row.name, row.holder, row.fence, row.beat) if row else Lease(name, "", 0, 0)


def take(connection: sa.Connection, seen: Lease, holder: str) -> Lease | None:
    """Become the holder, unless the row changed since it was seen."""
    empty = {"name": seen.name, "holder": "", "fence": 0, "beat": 0}
    connection.execute(insert_or_ignore(connection, leases).values(empty))
    taken = connection.execute(
        sa.update(leases)
        .where(*_is(seen), leases.c.beat == seen.beat)
        .values(holder=holder, fence=seen.fence + 1, beat=0)
    )
    return Lease(seen.name, holder, seen.fence + 1, 0) if taken.rowcount == 1 else None


def beat(connection: sa.Connection, held: Lease) -> bool:
    """Give a sign of life; False when somebody else holds the row by now."""
    done = connection.execute(sa.update(leases).where(*_is(held)).values(beat=leases.c.beat + 1))
    return done.rowcount == 1


def confirm(connection: sa.Connection, held: Lease) -> bool:
    """Whether it is still held, locked until the end of the transaction.

    Nobody takes the row before what was written with it is committed.
    """
    query = sa.select(leases.c.fence).where(*_is(held)).with_for_update()
    return connection.execute(query).first() is not None


def give_back(connection: sa.Connection, held: Lease) -> None:
    """Let the next one in at once; idempotent."""
    connection.execute(sa.update(leases).where(*_is(held)).values(holder=""))


def _is(lease: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        leases.c.name == lease.name,
        leases.c.holder == lease.holder,
        leases.c.fence == lease.fence,
    )
