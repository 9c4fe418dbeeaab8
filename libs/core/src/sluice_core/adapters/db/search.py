"""What jobs are found by: the start of title, link or id, or whole words of the title.

Two narrow tables beside the jobs. They are written twice in a job's life, while the job's own row
is written all the time and would drag their indexes along. `job_terms` is what the index of a book
is: each word, and each pair of words, with its jobs in order of time, so that the newest with a
word are found without looking at the others.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from sluice_core.adapters.db.schema import job_search, job_terms
from sluice_core.adapters.db.sources import Source, below
from sluice_core.domain.search import (
    MAX_LINK,
    MAX_TERM,
    MAX_TITLE,
    fold,
    phrase,
    terms_of,
    terms_sought,
    words_of,
)

_ID_LENGTH = 26
#: Terms of a question of which the rarest is looked for; one of them is rare, or none is.
_TERMS_COUNTED = 6


@dataclass(frozen=True, slots=True)
class Way:
    """One of the things by which a question finds a job."""

    #: Of `job_search`: whether the job is meant.
    holds: sa.ColumnElement[bool]
    #: Each has all jobs that are meant, and maybe others.
    sources: tuple[Source, ...]
    #: The sources have no others.
    is_exact: bool = False


def entry_of(job_id: str, *, preset: str, url: str, title: str | None) -> dict[str, Any]:
    """The row of a job."""
    link = fold(url, MAX_LINK)
    return {"job_id": job_id, "preset": preset, "link": link, **_of_title(title)}


def _of_title(title: str | None) -> dict[str, str]:
    folded = fold(title or "", MAX_TITLE)
    return {"title": folded, "words": phrase(words_of(folded))}


def terms_in(entry: dict[str, Any]) -> list[str]:
    """The terms of a row, in order."""
    return sorted(terms_of(entry["words"].split()))


def add_terms(connection: sa.Connection, entries: Sequence[dict[str, Any]]) -> None:
    """What the titles of rows of `entry_of` are found by."""
    _add_terms(connection, [(term, e["job_id"]) for e in entries for term in terms_in(e)])


def rename(connection: sa.Connection, job_id: str, title: str | None) -> None:
    """The job's title is known now."""
    entry = _of_title(title)
    own = job_search.c.job_id == job_id
    known = connection.execute(sa.select(job_search.c.words).where(own)).scalar()
    if known is None:
        return
    before, after = terms_of(known.split()), terms_of(entry["words"].split())
    connection.execute(sa.update(job_search).where(own).values(**entry))
    _remove_terms(connection, {job_id: before - after})
    _add_terms(connection, [(term, job_id) for term in sorted(after - before)])


def forget(connection: sa.Connection, job_ids: Collection[str]) -> None:
    """The jobs are gone."""
    own = job_search.c.job_id.in_(job_ids)
    words = connection.execute(sa.select(job_search.c.job_id, job_search.c.words).where(own))
    _remove_terms(connection, {job_id: terms_of(text.split()) for job_id, text in words})
    connection.execute(sa.delete(job_search).where(own))


def _add_terms(connection: sa.Connection, pairs: Sequence[tuple[str, str]]) -> None:
    if not pairs:
        return
    if connection.dialect.name == "postgresql":
        # One statement for all: a large collection brings a hundred thousand.
        columns = (_array(side) for side in zip(*pairs, strict=True))
        rows = sa.select(*(sa.func.unnest(column) for column in columns))
        connection.execute(sa.insert(job_terms).from_select(["term", "job_id"], rows))
        return
    rows_of = [{"term": term, "job_id": job_id} for term, job_id in pairs]
    connection.execute(sa.insert(job_terms), rows_of)


def _array(values: Sequence[str]) -> sa.BindParameter[Any]:
    return sa.bindparam(None, list(values), type_=postgresql.ARRAY(sa.Text))


def _remove_terms(connection: sa.Connection, by_job: dict[str, set[str]]) -> None:
    gone = [(job_id, sorted(terms)) for job_id, terms in by_job.items() if terms]
    for job_id, terms in gone:
        connection.execute(
            sa.delete(job_terms).where(job_terms.c.term.in_(terms), job_terms.c.job_id == job_id)
        )


def ways(q: str, before_id: str | None) -> list[Way]:
    """By what a question finds jobs, and where to look for those older than `before_id`."""
    return [
        *_by_start(job_search.c.title, fold(q, MAX_TITLE)),
        *_by_start(job_search.c.link, fold(q, MAX_LINK)),
        *_by_id(q, before_id),
        *_by_words(fold(q, MAX_TITLE), before_id),
    ]


def _by_start(column: sa.Column[str], start: str) -> list[Way]:
    if not start:
        return []
    last = start + chr(sys.maxunicode)
    # Side by side in the index, but not in order of time.
    ids = (
        sa.select(job_search.c.job_id.label("id"))
        .where(column >= start, column <= last)
        .order_by(column, job_search.c.job_id)
    )
    # No condition of which an index knows: where it is asked, another order is walked.
    holds = sa.func.substr(column, 1, len(start)) == start
    return [Way(holds, (Source(job_search.c.job_id, (ids,), in_order=False),), is_exact=True)]


def _by_id(q: str, before_id: str | None) -> list[Way]:
    start = q.upper()
    if not (start.isascii() and start.isalnum() and len(start) <= _ID_LENGTH):
        return []
    first, last = start.ljust(_ID_LENGTH, "0"), start.ljust(_ID_LENGTH, "Z")
    holds = job_search.c.job_id.between(first, last)
    ids = (
        sa.select(job_search.c.job_id.label("id"))
        .where(holds, below(job_search.c.job_id, before_id))
        .order_by(job_search.c.job_id.desc())
    )
    return [Way(holds, (Source(job_search.c.job_id, (ids,)),), is_exact=True)]


def _by_words(asked: str, before_id: str | None) -> list[Way]:
    words = words_of(asked)
    if not words:
        return []
    literal = asked.strip()
    # One word after the other, and with the very signs between them.
    holds = sa.and_(
        job_search.c.words.contains(phrase(words), autoescape=True),
        job_search.c.title.contains(literal, autoescape=True),
    )
    terms = list(dict.fromkeys(terms_sought(words)))[:_TERMS_COUNTED]
    is_exact = words == [literal] and len(literal) < MAX_TERM
    return [Way(holds, tuple(_of_term(term, before_id) for term in terms), is_exact)]


def _of_term(term: str, before_id: str | None) -> Source:
    ids = (
        sa.select(job_terms.c.job_id.label("id"))
        .where(job_terms.c.term == term, below(job_terms.c.job_id, before_id))
        .order_by(job_terms.c.job_id.desc())
    )
    return Source(job_terms.c.job_id, (ids,))
