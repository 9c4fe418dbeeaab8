"""Inserts that may meet a row that is there already; each database spells them in its own way."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(
    connection: sa.Connection, table: sa.Table
) -> postgresql.dml.Insert | sqlite.dml.Insert:
    """The database's own INSERT, which knows `on_conflict_do_update`."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def insert_or_ignore(
    connection: sa.Connection, table: sa.Table
) -> postgresql.dml.Insert | sqlite.dml.Insert:
    """An INSERT that leaves a row alone with which it shares a unique key.

    Add `returning` to learn what was written: not every driver counts the rows of such an insert.
    """
    return insert_into(connection, table).on_conflict_do_nothing()
