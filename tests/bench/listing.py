"""Lists, searches and counts over a million jobs, and how fast jobs come in.

`python -m tests.bench.listing [jobs on PostgreSQL] [jobs on SQLite]`
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import job_counts, migrate
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.adapters.db.listing import Filter, count, list_page
from sluice_core.adapters.db.schema import job_counts as counts_table
from sluice_core.adapters.db.schema import job_search, job_terms
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.db.search import entry_of, terms_in
from sluice_core.domain.states import Status
from sluice_testing.postgres import running_postgres

ROUNDS = 20
WORDS = [
    *(
        "river",
        "harbour",
        "lecture",
        "film",
        "night",
        "music",
        "garden",
        "city",
        "winter",
        "summer",
    ),
    *("mountain", "travel", "cooking", "the", "of", "and", "how", "to", "play", "guitar", "cat"),
    *("history", "science", "math", "dog", "train", "ocean", "light", "story", "official", "video"),
]
SIGNS = "我的猫在花园里看海山水城市音乐电影冬夏天气学习历史科学旅行日月火木金土"
#: State -> share of all.
SHARES = {"SUCCESS": 0.90, "FAILED": 0.05, "CANCELED": 0.0499, "PENDING": 0.0001}


def rows(count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Jobs as a long life leaves them, oldest first, and what they are found by."""
    chance = random.Random(7)
    states = chance.choices(list(SHARES), list(SHARES.values()), k=count)
    for n, state in enumerate(states):
        title = (
            "".join(chance.choices(SIGNS, k=9))
            if n % 5 == 0
            else " ".join(chance.choices(WORDS, k=6)) + f" {n}"
        )
        job_id, key = f"01{n:024}", f"key{n % 50:023}"
        url = f"https://media{n % 1000}.example/watch?v={n}"
        yield (
            {
                "id": job_id, "url": url, "preset": "best", "lane": "default", "options": {},
                "api_key_id": key, "status": state, "stage": "parse", "title": title,
                "created_at": 1.7e9 + n, "updated_at": 1.7e9 + n,
            },
            entry_of(job_id, preset="best", url=url, title=title),
        )  # fmt: skip


def fill(engine: sa.Engine, count: int) -> None:
    """Without triggers, which would only make it slower: the counts are written at once."""
    is_postgresql = engine.dialect.name == "postgresql"
    with write(engine) as c:
        if is_postgresql:
            c.execute(sa.text("SET LOCAL session_replication_role = replica"))
            _copy(c, count)
        else:
            pairs = list(rows(count))
            c.execute(sa.insert(jobs_table), [job for job, _ in pairs])
            entries = [entry for _, entry in pairs]
            c.execute(sa.insert(job_search), entries)
            c.execute(sa.insert(job_terms), list(terms(entries)))
            c.execute(sa.text("DELETE FROM job_changes"))
        sums = c.execute(
            sa.select(jobs_table.c.status, sa.func.count()).group_by(jobs_table.c.status)
        ).all()
        c.execute(sa.insert(counts_table), [{"status": s, "count": n} for s, n in sums])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        c.exec_driver_sql("VACUUM ANALYZE" if is_postgresql else "ANALYZE")


def terms(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the terms of these rows."""
    return ({"term": t, "job_id": e["job_id"]} for e in entries for t in terms_in(e))


def _copy(connection: sa.Connection, count: int) -> None:
    raw = connection.connection.driver_connection
    assert raw is not None
    entries = (entry for _, entry in rows(count))
    tables = {
        jobs_table: (job for job, _ in rows(count)),
        job_search: (entry for _, entry in rows(count)),
        job_terms: terms(entries),
    }
    for table, values in tables.items():
        first = next(values)
        with raw.cursor() as cursor:
            names = ", ".join(first)
            with cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
                for row in chain([first], values):
                    copy.write_row(
                        [json.dumps(v) if isinstance(v, dict) else v for v in row.values()]
                    )


def questions() -> dict[str, Callable[[sa.Connection], object]]:
    """Name -> what is asked."""

    def page(**fields: Any) -> Callable[[sa.Connection], object]:
        where = Filter(**fields)
        return lambda c: list_page(c, where, before_id=None, limit=51)

    key = f"key{7:023}"
    failed = [Status.FAILED, Status.CANCELED]
    return {
        "bare SELECT 1": lambda c: c.execute(sa.text("SELECT 1")).all(),
        "newest": page(),
        "roots": page(roots_only=True),
        "failed": page(status=failed, roots_only=True),
        "active (few)": page(status=[Status.PENDING, Status.PARSING, Status.DOWNLOADING]),
        "of one key": page(api_key_id=key),
        "failed of one key": page(api_key_id=key, status=failed),
        "a common word": page(q="river"),
        "two words": page(q="cat dog"),
        "a rare word": page(q="4242"),
        "no such word": page(q="nowhere"),
        "start of a title": page(q="winter summer"),
        "start of a link": page(q="https://media42.example/"),
        "start of every link": page(q="https://"),
        "Chinese, a word": page(q="猫在"),
        "Chinese, one sign": page(q="猫"),
        "Chinese, none such": page(q="猫猫猫猫猫猫"),
        "failed with a word": page(q="guitar", status=failed),
        "a word of one key": page(q="guitar", api_key_id=key),
        "an id": page(q=f"01{4242:024}"),
        "counts by state": job_counts.read,
        "how many are failed": lambda c: count(c, Filter(status=failed), cap=10_000),
    }


def measure(engine: sa.Engine) -> dict[str, dict[str, float]]:
    """Name -> milliseconds, median and 95th percentile."""
    found = {}
    for name, ask in questions().items():
        took = []
        for _ in range(ROUNDS):
            with read(engine) as c:
                begun = time.perf_counter()
                ask(c)
                took.append((time.perf_counter() - begun) * 1000)
        found[name] = {
            "p50": round(statistics.median(took), 1),
            "p95": round(sorted(took)[int(ROUNDS * 0.95) - 1], 1),
        }
    return found


def listing(
    on_postgresql: int = 1_000_000, on_sqlite: int = 100_000
) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """Both databases, filled and asked: what it was, and the figures."""
    if on_sqlite:
        with tempfile.TemporaryDirectory() as folder:
            engine = open_engine(f"sqlite:///{Path(folder) / 'sluice.db'}")
            migrate.upgrade(engine)
            fill(engine, on_sqlite)
            yield f"SQLite, {on_sqlite} jobs", measure(engine)
            engine.dispose()
    if on_postgresql:
        with running_postgres() as server:
            engine = open_engine(server.url(server.new_database(migrated=True)))
            fill(engine, on_postgresql)
            yield f"PostgreSQL, {on_postgresql} jobs", measure(engine)
            engine.dispose()


if __name__ == "__main__":
    for database, figures in listing(*map(int, sys.argv[1:3])):
        lines = [f"  {n:24}{f['p50']:9.1f} ms {f['p95']:9.1f} ms" for n, f in figures.items()]
        sys.stdout.write("\n".join([database, *lines, ""]))
        sys.stdout.flush()
