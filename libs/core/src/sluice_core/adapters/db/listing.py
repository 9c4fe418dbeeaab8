"""Jobs that fit a filter: pages of them, newest first, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import search
from sluice_core.adapters.db.jobs import get_many
from sluice_core.adapters.db.schema import job_search, jobs
from sluice_core.adapters.db.search import Way
from sluice_core.adapters.db.sources import (
    SHORT,
    Checks,
    Sizes,
    Source,
    along,
    below,
    looked_up,
    read_whole,
    sizes,
    walked,
)
from sluice_core.domain.job import Job
from sluice_core.domain.states import ACTIVE, Status

_VISIBLE = jobs.c.deleted_at.is_(None)


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list shows; None means any."""

    status: Sequence[Status] | None = None
    #: Start of title, link or id, or whole words of the title.
    q: str | None = None
    parent_id: str | None = None
    preset: str | None = None
    ids: Sequence[str] | None = None
    error_code: str | None = None
    #: Unix seconds: changed since.
    since: float | None = None
    api_key_id: str | None = None
    #: Only jobs that are not children.
    roots_only: bool = False


def list_page(
    connection: sa.Connection, where: Filter, *, before_id: str | None, limit: int
) -> list[Job]:
    """Newest first, keyset pages: `before_id` is the last id of the page before."""
    parts = _parts(connection, where, before_id, limit)
    if not parts:
        return []
    selected = [sa.select(part.subquery().c.id) for part in parts]
    ids = set(connection.execute(sa.union_all(*selected)).scalars())
    newest = sorted(ids, reverse=True)[:limit]
    # By themselves: a database that is given both at once may walk all jobs in their order.
    found = get_many(connection, newest)
    return [found[job_id] for job_id in newest if job_id in found]


def _parts(
    connection: sa.Connection, where: Filter, before_id: str | None, limit: int
) -> list[sa.Select[Any]]:
    """Selects of ids among which are the `limit` newest that fit."""
    sources = _sources(connection, where, before_id)
    ways = search.ways(where.q, before_id) if where.q else None
    in_order = next((source for source in sources if source.in_order), None)
    if ways is None and len(sources) == 1 and in_order:
        return walked(in_order, _checks(where), limit)
    size = sizes(connection, [*sources, *_undecided(ways or [])])
    narrow = min(sources, key=size.of, default=None)
    if narrow is not None and size.of(narrow) < SHORT:
        return read_whole(narrow, _checks(where, ways), before_id, limit)
    if ways is not None:
        parts = (_by_way(way, where, size, before_id, limit) for way in ways)
        return [part for of_way in parts for part in of_way]
    if in_order is not None:
        return walked(in_order, _checks(where), limit)
    return [_all_by_id(connection, where, before_id, limit)]


def _undecided(ways: Sequence[Way]) -> list[Source]:
    """Those whose sizes decide which is read, and how."""
    return [
        source
        for way in ways
        for source in way.sources
        if len(way.sources) > 1 or not source.in_order
    ]


def _by_way(
    way: Way, where: Filter, size: Sizes, before_id: str | None, limit: int
) -> list[sa.Select[Any]]:
    source = min(way.sources, key=size.of)
    checks = _checks(where, None if way.is_exact else [way])
    if source.in_order:
        return walked(source, checks, limit) if size.of(source) else []
    if size.of(source) < SHORT:
        return read_whole(source, checks, before_id, limit) if size.of(source) else []
    # Many begin so: the newest of all soon show a page of them.
    everything = sa.select(job_search.c.job_id.label("id")).where(
        below(job_search.c.job_id, before_id)
    )
    newest = everything.order_by(job_search.c.job_id.desc())
    return walked(Source(job_search.c.job_id, (newest,)), _checks(where, [way]), limit)


def _sources(connection: sa.Connection, where: Filter, before_id: str | None) -> list[Source]:
    """Where the ids of all that fit stand together, as far as an index has them."""
    found = []
    owners = {jobs.c.parent_id: where.parent_id, jobs.c.api_key_id: where.api_key_id}
    named: list[tuple[list[sa.Column[Any]], list[str]]]
    named = [([column], [owner]) for column, owner in owners.items() if owner is not None]
    if where.status and not named:
        named = [([], [])]
    for columns, values in named:
        index = (*columns, jobs.c.status, jobs.c.id)
        parts = (
            along(connection, index, [*values, status.value], before_id).where(_VISIBLE)
            for status in where.status or Status
        )
        found.append(Source(jobs.c.id, tuple(parts)))
    if where.preset is not None:
        presets = (job_search.c.preset, job_search.c.job_id)
        part = along(connection, presets, [where.preset], before_id)
        found.append(Source(job_search.c.job_id, (part,)))
    if where.since is not None:
        changed = sa.select(jobs.c.id.label("id")).where(jobs.c.updated_at >= where.since)
        by_time = changed.order_by(jobs.c.updated_at.desc())
        found.append(Source(jobs.c.id, (by_time,), in_order=False))
    return found


def _all_by_id(
    connection: sa.Connection, where: Filter, before_id: str | None, limit: int
) -> sa.Select[Any]:
    query = sa.select(jobs.c.id).where(below(jobs.c.id, before_id))
    if where.roots_only and connection.dialect.name == "sqlite":
        # As an expression: else all roots would be read by their index and sorted.
        query = query.where(sa.func.ifnull(jobs.c.parent_id, "") == "")
        where = replace(where, roots_only=False)
    return query.where(*_conditions(where)).order_by(jobs.c.id.desc()).limit(limit)


def ids_after(connection: sa.Connection, where: Filter, *, after_id: str, limit: int) -> list[str]:
    """Ids of jobs that fit, oldest first, in pages by id."""
    query = _all_that_fit(where).where(jobs.c.id > after_id).order_by(jobs.c.id).limit(limit)
    return list(connection.execute(query).scalars())


def count(connection: sa.Connection, where: Filter, *, cap: int) -> int:
    """How many fit; of more than `cap`, `cap`."""
    some = _all_that_fit(where).limit(cap)
    counted = sa.select(sa.func.count()).select_from(some.subquery())
    found: int = connection.execute(counted).scalar_one()
    return found


def active_of_key(connection: sa.Connection, api_key_id: str, *, cap: int) -> int:
    """Jobs of a key that have not ended, children included; of more than `cap`, `cap`."""
    return count(connection, Filter(status=tuple(ACTIVE), api_key_id=api_key_id), cap=cap)


def _all_that_fit(where: Filter) -> sa.Select[Any]:
    query = sa.select(jobs.c.id).where(*_conditions(where))
    if where.q:
        query = query.where(_is_meant(jobs.c.id, search.ways(where.q, None)))
    return query


def _checks(where: Filter, ways: Sequence[Way] | None = None) -> Checks:
    """What must hold of a job; with `ways`, also that it is found by one of them."""
    row = jobs.alias("job")

    def of(id_column: sa.ColumnElement[str]) -> list[sa.ColumnElement[bool]]:
        found = [looked_up(row.c.id, id_column, _conditions(where, row))]
        if ways is not None:
            found.append(_is_meant(id_column, ways))
        return found

    return of


def _is_meant(id_column: sa.ColumnElement[str], ways: Sequence[Way]) -> sa.ColumnElement[bool]:
    holds = sa.or_(sa.false(), *(way.holds for way in ways))
    if id_column is job_search.c.job_id:
        return holds
    return looked_up(job_search.c.job_id, id_column, [holds])


def _conditions(where: Filter, row: sa.FromClause = jobs) -> list[sa.ColumnElement[bool]]:
    """Of `jobs`."""
    of = row.c
    found: list[sa.ColumnElement[bool]] = [of.deleted_at.is_(None)]
    if where.status:
        found.append(of.status.in_([s.value for s in where.status]))
    if where.parent_id is not None:
        found.append(of.parent_id == where.parent_id)
    if where.roots_only:
        found.append(of.parent_id.is_(None))
    if where.preset is not None:
        found.append(of.preset == where.preset)
    if where.ids is not None:
        found.append(of.id.in_(where.ids))
    if where.error_code is not None:
        found.append(of.error_code == where.error_code)
    if where.since is not None:
        found.append(of.updated_at >= where.since)
    if where.api_key_id is not None:
        found.append(of.api_key_id == where.api_key_id)
    return found
