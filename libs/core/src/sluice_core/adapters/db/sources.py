"""Where ids of jobs are read from, so that a page costs a page however many jobs there are.

A database that is given all conditions at once chooses an order by what it believes of the data,
and reads a million rows where it is wrong. Here each select names the index that it walks by the
order that it asks for; the other conditions are looked up row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

#: Ids that may be read at once, each with a look at its job: some ten milliseconds. What has more
#: is walked: among a million jobs, a page of it is then full after about as many.
SHORT = 5_000
#: An id as a column -> what must hold of its job.
Checks = Callable[[sa.ColumnElement[str]], list[sa.ColumnElement[bool]]]
#: After every id.
_LAST = "Z" * 27


@dataclass(frozen=True, slots=True)
class Source:
    """Ids that an index holds together."""

    #: What the parts select as `id`.
    id: sa.Column[str]
    #: Each in the order of its index.
    parts: tuple[sa.Select[Any], ...]
    #: Newest first: it may be walked until a page is full.
    in_order: bool = True


def below(column: sa.ColumnElement[str], before_id: str | None) -> sa.ColumnElement[bool]:
    """Older than the job, or any."""
    return column < (before_id or _LAST)


def along(
    connection: sa.Connection,
    columns: Sequence[sa.Column[Any]],
    values: Sequence[str],
    before_id: str | None,
) -> sa.Select[Any]:
    """Ids under one key of an index, newest first.

    Args:
        connection: whose database decides how.
        columns: of the index, its id as the last one.
        values: of all columns but the last.
        before_id: only older ones.

    """
    *keys, job_id = columns
    ids = sa.select(job_id.label("id")).order_by(*(column.desc() for column in columns))
    if connection.dialect.name != "postgresql":
        same = (key == value for key, value in zip(keys, values, strict=True))
        return ids.where(*same, below(job_id, before_id))
    # As a range over all columns: of columns said to be equal PostgreSQL knows that they need no
    # sorting, and may walk all jobs by id instead to look for the few that fit.
    first = sa.tuple_(*keys) >= sa.tuple_(*values)
    last = sa.tuple_(*columns) < sa.tuple_(*values, before_id or _LAST)
    # Says nothing new, but that they are few.
    each = (key.between(value, value) for key, value in zip(keys, values, strict=True))
    return ids.where(first, last, *each)


class Sizes:
    """How many ids sources have; `SHORT` and more are the same, and so are those not counted."""

    def __init__(self, counted: Sequence[tuple[Source, int]]) -> None:
        # By identity: a source is statements, which have no equality.
        self._counted = {id(source): count for source, count in counted}

    def of(self, source: Source) -> int:
        return self._counted.get(id(source), SHORT)


def sizes(connection: sa.Connection, sources: Sequence[Source]) -> Sizes:
    """Count them, all in one statement."""
    if not sources:
        return Sizes([])
    counts = (
        sa.select(sa.func.count()).select_from(_all_of(source)).scalar_subquery()
        for source in sources
    )
    return Sizes(list(zip(sources, connection.execute(sa.select(*counts)).one(), strict=True)))


def walked(source: Source, checks: Checks, limit: int) -> list[sa.Select[Any]]:
    """The newest of each part that pass."""
    return [part.where(*checks(source.id)).limit(limit) for part in source.parts]


def read_whole(
    source: Source, checks: Checks, before_id: str | None, limit: int
) -> list[sa.Select[Any]]:
    """The newest of a short one that pass."""
    ids = _all_of(source)
    older = sa.select(ids.c.id).where(below(ids.c.id, before_id)).order_by(ids.c.id.desc())
    # Sorted first, and then looked up one by one until there are enough: a subquery with a limit
    # keeps its order, and is not mixed with what is asked outside.
    newest = older.limit(SHORT * len(source.parts)).subquery()
    return [sa.select(newest.c.id).where(*checks(newest.c.id)).limit(limit)]


def looked_up(
    table_id: sa.ColumnElement[str],
    id_column: sa.ColumnElement[str],
    conditions: Sequence[sa.ColumnElement[bool]],
) -> sa.ColumnElement[bool]:
    """Whether the row with this id meets the conditions: a look at one row, never a join."""
    return sa.select(sa.and_(*conditions)).where(table_id == id_column).scalar_subquery()


def _all_of(source: Source) -> sa.Subquery:
    parts = [sa.select(part.limit(SHORT).subquery().c.id) for part in source.parts]
    return sa.union_all(*parts).subquery()
