"""Pages of jobs: the same whichever index is walked, and no index is left for all the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from sluice_core.adapters.db import listing, migrate, sources
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.adapters.db.listing import Filter, list_page
from sluice_core.adapters.db.schema import job_search, job_terms, jobs
from sluice_core.adapters.db.search import entry_of, terms_in
from sluice_core.domain.states import Status
from sluice_testing.postgres import PostgresServer

#: Jobs of the installation, and how many of the oldest are of another kind than what came after.
JOBS, OLD = 20_000, 4_000
PAGE = 21


def job_at(n: int) -> dict[str, Any]:
    """The nth job: all that is looked for is often there, seldom, or of old alone."""
    words = ["river" if n % 2 else "harbour", f"w{n % 700}", "night" if n % 40 else "train"]
    if n < OLD:
        words.append("autumn")
    title = "我的猫" + "山水海"[n % 3] + "里" if n % 5 == 0 else " ".join(words)
    return {
        "id": f"01{n:024}",
        "url": f"https://{'old' if n < OLD else 'new'}{n % 90}.example/{n}",
        "preset": "480p" if n < OLD and n % 4 == 0 else "best",
        "lane": "default",
        "options": {},
        "api_key_id": f"key{n % 4 if n < OLD else n % 2:023}",
        "parent_id": f"parent{n % 2:020}" if n < OLD else None,
        "status": "FAILED" if n < OLD and n % 3 == 0 else "PENDING" if n % 900 == 7 else "SUCCESS",
        "stage": "parse",
        "title": title,
        "created_at": 1.7e9 + n,
        "updated_at": 1.7e9 + n,
        "deleted_at": 1.8e9 if n % 250 == 0 else None,
    }


@cache
def all_jobs() -> list[dict[str, Any]]:
    return list(map(job_at, range(JOBS)))


def fill(engine: sa.Engine, numbers: range) -> None:
    made = all_jobs()[numbers.start : numbers.stop]
    entries = [entry_of(j["id"], preset=j["preset"], url=j["url"], title=j["title"]) for j in made]
    terms = [{"term": t, "job_id": e["job_id"]} for e in entries for t in terms_in(e)]
    with write(engine) as c:
        for table, rows in ((jobs, made), (job_search, entries), (job_terms, terms)):
            c.execute(sa.insert(table), rows)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "postgresql, stale statistics"])
def full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sa.Engine]:
    """All jobs; filled once."""
    if request.param == "sqlite":
        engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('db') / 'sluice.db'}")
        migrate.upgrade(engine)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        engine = open_engine(server.url(server.new_database(migrated=True)))
    few = JOBS // 100
    fill(engine, range(few))
    if "stale" in request.param:
        _gather_statistics(engine)
    fill(engine, range(few, JOBS))
    if "stale" not in request.param:
        _gather_statistics(engine)
    yield engine
    engine.dispose()


def _gather_statistics(engine: sa.Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        c.exec_driver_sql("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE")


FORMS = {
    "all": Filter(),
    "no children": Filter(roots_only=True),
    "a state of old": Filter(status=[Status.FAILED]),
    "a rare state": Filter(status=[Status.PENDING, Status.PARSING]),
    "a key": Filter(api_key_id=f"key{1:023}"),
    "a key of old": Filter(api_key_id=f"key{3:023}"),
    "a state of a key": Filter(api_key_id=f"key{0:023}", status=[Status.FAILED]),
    "a parent of old": Filter(parent_id=f"parent{1:020}"),
    "no such parent": Filter(parent_id="nobody"),
    "a state of a parent": Filter(parent_id=f"parent{1:020}", status=[Status.FAILED]),
    "a preset of old": Filter(preset="480p"),
    "no such preset": Filter(preset="720p"),
    "a preset and a state": Filter(preset="480p", status=[Status.FAILED]),
    "few changed since": Filter(since=1.7e9 + JOBS - 50),
    "many changed since": Filter(since=1.7e9),
    "half have the word": Filter(q="river"),
    "a word of old": Filter(q="autumn"),
    "a rare word": Filter(q="w77"),
    "no such word": Filter(q="nowhere"),
    "words that never meet": Filter(q="river harbour"),
    "a frequent and a rare word": Filter(q="w77 night"),
    "three words": Filter(q="river w77 night"),
    "words with signs between": Filter(q="river - w77"),
    "one sign of Chinese": Filter(q="猫"),
    "two signs": Filter(q="猫山"),
    "signs that never meet": Filter(q="山水"),
    "the same sign": Filter(q="猫猫猫猫"),
    "start of many titles": Filter(q="riv"),
    "start of few titles": Filter(q="river w77"),
    "start of all links": Filter(q="https://"),
    "start of links of old": Filter(q="https://old12.example/"),
    "start of few links": Filter(q="https://new55"),
    "an id": Filter(q=f"01{4242:024}"),
    "start of ids": Filter(q="0100000000000000000000"),
    "a word and a state": Filter(q="night", status=[Status.FAILED]),
    "a word and a rare state": Filter(q="river", status=[Status.PENDING]),
    "a word of a key": Filter(q="river", api_key_id=f"key{3:023}"),
    "a word below a parent": Filter(q="river", parent_id=f"parent{1:020}"),
    "a word with a preset": Filter(q="river", preset="480p"),
    "a word without children": Filter(q="night", roots_only=True),
}


@cache
def right_of(form: str) -> list[str]:
    """Ids of what fits a form, the newest first."""
    return [job["id"] for job in reversed(all_jobs()) if fits(job, FORMS[form])]


def fits(job: dict[str, Any], where: Filter) -> bool:
    """Said once more, the long way."""
    title, link = job["title"], job["url"]
    words = [f" {' '.join(w) if ord(w[0]) > 0x3000 else w} " for w in title.split()]
    q = where.q or ""
    asked = f" {' '.join(q) if ord(q[:1] or ' ') > 0x3000 else q} "
    return (
        job["deleted_at"] is None
        and (not where.status or job["status"] in where.status)
        and where.api_key_id in (None, job["api_key_id"])
        and where.parent_id in (None, job["parent_id"])
        and where.preset in (None, job["preset"])
        and not (where.roots_only and job["parent_id"])
        and (where.since is None or job["updated_at"] >= where.since)
        and (
            title.startswith(q)
            or link.startswith(q)
            or job["id"].startswith(q)
            or (asked in "".join(words).replace("  ", " ") and q in title)
        )
    )


@pytest.mark.parametrize("short", [30, sources.SHORT])
@pytest.mark.parametrize("form", FORMS)
def test_every_page_is_that_of_the_filter(
    full: sa.Engine, form: str, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether what is looked for is read as a whole, or walked, or all are."""
    for module in (sources, listing):
        monkeypatch.setattr(module, "SHORT", short)
    where = FORMS[form]
    right = right_of(form)
    # The first pages, one in the middle, and the last.
    for at in sorted({0, PAGE, 2 * PAGE, len(right) // 2, max(0, len(right) - 3), len(right)}):
        before = right[at - 1] if 0 < at <= len(right) else None
        if at and before is None:
            continue
        with read(full) as c:
            page = list_page(c, where, before_id=before, limit=PAGE)
        assert [job.id for job in page] == right[at : at + PAGE]


@contextmanager
def statements(engine: sa.Engine) -> Iterator[list[tuple[str, Any]]]:
    """What is executed meanwhile, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, text: str, values: Any, *_: object) -> None:
        seen.append((text, values))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("form", FORMS)
def test_no_page_reads_all_jobs(
    full: sa.Engine, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first nor the last, whatever the database believes of its rows."""
    for module in (sources, listing):
        monkeypatch.setattr(module, "SHORT", JOBS // 8)
    where = FORMS[form]
    for before in (None, f"01{OLD // 2:024}"):
        with read(full) as c, statements(full) as seen:
            list_page(c, where, before_id=before, limit=PAGE)
        asked = [each for each in seen if each[0].startswith("SELECT")]
        with full.connect() as c:
            work = _rows_read if full.dialect.name == "postgresql" else _steps
            assert sum(work(c, *each) for each in asked) < JOBS * 0.6


def _rows_read(connection: sa.Connection, text: str, values: Any) -> float:
    """Of tables and indexes by one statement; no table may be read from its beginning."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"
    found = connection.exec_driver_sql(explain, values).scalar_one()
    plan = json.loads(found) if isinstance(found, str) else found
    read_rows = 0.0
    nodes = [plan[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        assert node["Node Type"] != "Seq Scan", node
        if "Scan" in node["Node Type"] and "Relation Name" in node:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            read_rows += rows * node["Actual Loops"]
    return read_rows


def _steps(connection: sa.Connection, text: str, values: Any) -> float:
    """Rows read by one statement, from the steps of SQLite's machine: some twenty a row."""
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all()
    for row in plan:
        assert not row.detail.startswith(("SCAN jobs", "SCAN job_")), row.detail
    raw = connection.connection.driver_connection
    assert raw is not None
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    raw.set_progress_handler(count, 20)
    connection.exec_driver_sql(text, values).all()
    raw.set_progress_handler(None, 0)
    return counted[0]
