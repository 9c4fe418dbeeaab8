"""Counts of what was given up, kept with the state so that no restart forgets them."""

from __future__ import annotations

import sqlalchemy as sa

from sluice_core.adapters.db.schema import counters
from sluice_core.adapters.db.upsert import raise_by

#: Dead letters pushed out by newer ones.
DEAD_LETTERS_DROPPED = "dead_letters_dropped"


def add(connection: sa.Connection, name: str, count: int) -> None:
    """Raise a counter, which need not exist yet."""
    raise_by(connection, counters.c.value, [{"name": name, "value": count}])


def read(connection: sa.Connection, name: str) -> int:
    """The counter's value; 0 when nothing was counted yet."""
    query = sa.select(counters.c.value).where(counters.c.name == name)
    return connection.execute(query).scalar() or 0
