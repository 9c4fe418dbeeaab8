"""Jobs by the start of title, link or id, or by whole words of the title.

A narrow table beside the jobs: it is written twice in a job's life, while the job's own row is
written all the time and would drag these indexes along.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from sluice_core.adapters.db.schema import job_search, jobs
from sluice_core.domain.search import MAX_START, MAX_TITLE, fold, phrase, words_of

_ID_LENGTH = 26
#: As the indexes of PostgreSQL have them, so that it sees that they are the same.
_TITLE_START: sa.ColumnElement[str] = sa.func.substr(
    job_search.c.title, sa.literal_column("1"), sa.literal_column(str(MAX_START)), type_=sa.Text
)
_WORDS_ARRAY = sa.func.string_to_array(
    job_search.c.words, sa.literal_column("' '"), type_=postgresql.ARRAY(sa.Text)
)


def entry_of(job_id: str, *, api_key_id: str | None, url: str, title: str | None) -> dict[str, Any]:
    """The row of a job."""
    link = fold(url)[:MAX_START]
    return {"job_id": job_id, "api_key_id": api_key_id, "link": link, **_of_title(title)}


def _of_title(title: str | None) -> dict[str, str]:
    text = (title or "")[:MAX_TITLE].replace("\0", "\ufffd")
    return {"title": fold(text), "words": phrase(words_of(text))}


def add_many(connection: sa.Connection, entries: Sequence[dict[str, Any]]) -> None:
    if entries:
        connection.execute(sa.insert(job_search), entries)


def rename(connection: sa.Connection, job_id: str, title: str | None) -> None:
    """The job's title is known now."""
    connection.execute(
        sa.update(job_search).where(job_search.c.job_id == job_id).values(**_of_title(title))
    )


def matching(
    connection: sa.Connection,
    q: str,
    *,
    where: Sequence[sa.ColumnElement[bool]],
    api_key_id: str | None,
    before_id: str | None,
    limit: int,
) -> list[sa.Select[Any]]:
    """Selects of job ids, newest first, at most `limit` each; a job may be in several.

    Args:
        connection: whose database decides how.
        q: what is looked for.
        where: conditions on `jobs`.
        api_key_id: only jobs of this key.
        before_id: only older jobs.
        limit: rows of each.

    """
    own: list[sa.ColumnElement[bool]] = []
    if api_key_id is not None:
        own.append(job_search.c.api_key_id == api_key_id)
    if before_id is not None:
        own.append(job_search.c.job_id < before_id)
    # Looked at last: a join could begin with all jobs of a state.
    fits = sa.exists().where(jobs.c.id == job_search.c.job_id, *where)
    return [
        sa.select(job_search.c.job_id.label("id"))
        .where(way, *own, fits)
        .order_by(job_search.c.job_id.desc())
        .limit(limit)
        for way in _ways(connection, q)
    ]


def all_matching(connection: sa.Connection, q: str) -> sa.Select[Any]:
    """A select of the ids of all that fit, in no order."""
    return sa.select(job_search.c.job_id).where(sa.or_(*_ways(connection, q)))


def _ways(connection: sa.Connection, q: str) -> list[sa.ColumnElement[bool]]:
    """Each a condition that an index of its own serves, where there is one."""
    start = fold(q)[:MAX_START]
    words = words_of(q)
    if connection.dialect.name == "postgresql":
        starts = (_TITLE_START, job_search.c.link)
        ways = [column.startswith(start, autoescape=True) for column in starts]
    else:
        # One look at each row, newest first: an index would have to sort what many begin with.
        scanned = [_in_range(column, start) for column in (job_search.c.title, job_search.c.link)]
        if words:
            scanned.append(sa.and_(*_by_the_letter(q, words)))
        return [sa.or_(*scanned), *_by_id(q)]
    ways += _by_id(q)
    if words:
        ways.append(sa.and_(_WORDS_ARRAY.contains(words), *_by_the_letter(q, words)))
    return ways


def _in_range(column: sa.ColumnElement[str], start: str) -> sa.ColumnElement[bool]:
    """By the bytes, as SQLite compares texts."""
    return column.between(start, start + chr(sys.maxunicode))


def _by_the_letter(q: str, words: list[str]) -> list[sa.ColumnElement[bool]]:
    """One word after the other, and with the very signs between them."""
    in_order = job_search.c.words.contains(phrase(words), autoescape=True)
    by_the_letter = job_search.c.title.contains(fold(q).strip(), autoescape=True)
    return [in_order, by_the_letter]


def _by_id(q: str) -> list[sa.ColumnElement[bool]]:
    start = q.upper()
    if not (start.isascii() and start.isalnum() and len(start) <= _ID_LENGTH):
        return []
    # A range, which the primary key serves in every collation.
    first, last = start.ljust(_ID_LENGTH, "0"), start.ljust(_ID_LENGTH, "Z")
    return [job_search.c.job_id.between(first, last)]
