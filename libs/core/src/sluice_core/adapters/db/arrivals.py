"""Jobs that come in, written with what they are found by and the orders that start them.

PostgreSQL takes all of it in one statement, however many jobs there are: each round trip is a wait,
and a value that is bound by itself costs more than a row of JSON. SQLite, which has no insert
within another statement, lies in the same process and takes one insert for each table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect

from sluice_core.adapters.db import outbox, search
from sluice_core.adapters.db.schema import job_search, jobs
from sluice_core.adapters.db.schema import outbox as orders
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.domain.job import Job


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job that comes in."""

    job: Job
    #: Its columns, with text that every database takes.
    row: dict[str, Any]
    #: As of `search.entry_of`.
    entry: dict[str, Any]
    order: outbox.OutboxRow


def write(connection: sa.Connection, arrivals: Sequence[Arrival], *, now: float) -> set[str]:
    """Write them in their order; the ids of those for which no unique index held another job.

    Args:
        connection: to write with.
        arrivals: at least one; their rows have the same columns.
        now: Unix seconds.

    """
    write_rows = _at_once if connection.dialect.name == "postgresql" else _by_table
    written = write_rows(connection, arrivals, now)
    search.add_terms(connection, [a.entry for a in arrivals if a.job.id in written])
    return written


def _by_table(connection: sa.Connection, arrivals: Sequence[Arrival], now: float) -> set[str]:
    insert = insert_or_ignore(connection, jobs).returning(jobs.c.id)
    written = set(connection.execute(insert, [a.row for a in arrivals]).scalars())
    new = [a for a in arrivals if a.job.id in written]
    if new:
        connection.execute(sa.insert(job_search), [a.entry for a in new])
        outbox.add_many(connection, [a.order for a in new], now)
    return written


def _at_once(connection: sa.Connection, arrivals: Sequence[Arrival], now: float) -> set[str]:
    rows = {
        jobs.name: [a.row for a in arrivals],
        job_search.name: [a.entry for a in arrivals],
        orders.name: [outbox.values_of(a.order, now) for a in arrivals],
    }
    statement = _statement(*(tuple(of_table[0]) for of_table in rows.values()))
    texts = {name: json.dumps(of_table, ensure_ascii=False) for name, of_table in rows.items()}
    return set(connection.exec_driver_sql(statement, texts).scalars())


@cache
def _statement(*columns: tuple[str, ...]) -> str:
    """Of the columns of jobs, of what they are found by, and of orders; as the driver wants it.

    Made once: to look such a statement up takes the library longer than to send it.
    """
    of_jobs, of_search, of_orders = columns
    arrived = _rows(jobs, of_jobs)
    written = (
        postgresql.insert(jobs)
        .from_select(of_jobs, sa.select(arrived))
        .on_conflict_do_nothing()
        .returning(jobs.c.id)
        .cte("written")
    )
    beside = []
    for table, names in ((job_search, of_search), (orders, of_orders)):
        rows = _rows(table, names)
        of_written = sa.select(rows).where(rows.c.job_id.in_(sa.select(written.c.id)))
        beside.append(sa.insert(table).from_select(names, of_written).cte(f"beside_{table.name}"))
    statement = sa.select(written.c.id).add_cte(*beside)
    dialect = psycopg_dialect()  # type: ignore[no-untyped-call]  # the library has none
    return str(statement.compile(dialect=dialect))


def _rows(table: sa.Table, names: Sequence[str]) -> sa.TableValuedAlias:
    """A JSON list of rows, which is bound by the table's name."""
    bound = sa.cast(sa.bindparam(table.name, type_=sa.Text), postgresql.JSON)
    columns = [sa.column(name, table.c[name].type) for name in names]
    return (
        sa.func.json_to_recordset(bound)
        .table_valued(*columns)
        .render_derived(name=f"arrived_{table.name}", with_types=True)
    )
