"""Inserts that may meet a row that is there already; each database spells them in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def raise_by(
    connection: sa.Connection, total: sa.Column[Any], amounts: Sequence[dict[str, Any]]
) -> None:
    """Add amounts to totals, which need not exist yet.

    Args:
        connection: to write with.
        total: the column that is raised.
        amounts: rows of its table, each with a primary key of its own.

    """
    if not amounts:
        return
    keys = [column.name for column in total.table.primary_key]
    insert = insert_into(connection, total.table)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=keys, set_={total.name: total + insert.excluded[total.name]}
        ),
        # In one order: two who add at once would else wait for each other in a ring.
        sorted(amounts, key=lambda row: [row[key] for key in keys]),
    )
