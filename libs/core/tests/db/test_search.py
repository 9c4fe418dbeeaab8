"""What a search finds: the start of title, link or id, or whole words of the title."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import collections, moves, runs, search, sweeps
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.listing import Filter, count, ids_after, list_page
from sluice_core.adapters.db.schema import job_search, job_terms
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.domain.lanes import Actor
from sluice_testing.factories import NOW, make_job, run_at

TITLES = [
    "影片 🎬 合集",
    "100% _sure_ real",
    "100 percent real",
    "a\\b c/d",
    "o'Brien & Sons",
    "Caf\u00e9 \u00dcber ALLES",
    "שלום עולם",  # Hebrew
    "\u202eمرحبا بالعالم",  # noqa: RUF001  # Arabic
    "👨\u200d👩\u200d👧 family ❤\ufe0f",
    "我的猫在花园里",
    "\uff26\uff35\uff2c\uff2c width\uff01",
    "Winter. Summer",
]


@pytest.fixture
def filled(engine: sa.Engine) -> sa.Engine:
    with write(engine) as c:
        for n, title in enumerate(TITLES):
            make_job(c, url=f"https://Media.example/{n}?a=%20_b", entry={"title": title})
        make_job(c, url="https://other.example/影片?q=100%25")
    return engine


def found(engine: sa.Engine, q: str, **where: object) -> list[str]:
    """Titles or, without, links, newest first."""
    with read(engine) as c:
        page = list_page(c, Filter(q=q, **where), before_id=None, limit=99)  # type: ignore[arg-type]
    return [job.title or job.request.url for job in page]


@pytest.mark.parametrize(
    ("q", "numbers"),
    [
        # Starts of a title.
        ("影", {0}),
        ("100", {1, 2}),
        ("100%", {1}),
        ("100 p", {2}),
        ("a\\", {3}),
        ("win", {11}),
        ("inter", set()),
        ("שלום עו", {6}),
        ("مرح", {7}),
        # Whole words, in order, with the signs that are asked for.
        ("real", {1, 2}),
        ("percent real", {2}),
        ("real percent", set()),
        ("rea", set()),
        ("brien", {4}),
        ("o'Brien", {4}),
        ("o brien", set()),
        ("Winter Summer", set()),
        ("winter. summer", {11}),
        ("c/d", {3}),
        ("& sons", {4}),
        ("עולם", {6}),
        ("بالعالم", {7}),
        ("🎬", {0}),
        ("👩", {8}),
        ("❤", {8}),
        ("合集", {0}),
        ("猫", {9}),
        ("猫在花园", {9}),
        ("猫花", set()),
        ("我的猫在花园里", {9}),
        ("  percent  ", {2}),
        # Case and forms.
        ("CAFÉ ÜBER", {5}),
        ("cafe\u0301", {5}),
        ("alles", {5}),
        ("full width", {10}),
        ("width!", {10}),
        # Nothing stands for anything else.
        ("%", set()),
        ("_", set()),
        ("100_", set()),
        ("\\", set()),
        ("_sure_", {1}),
        ("sure", {1}),
        # Links and ids.
        ("https://media.example/1", {1, 10, 11}),
        ("HTTPS://MEDIA.EXAMPLE/3?a=%20_B", {3}),
        ("https://media.example/3?a=%20_c", set()),
        ("https://media.example/3%", set()),
        ("media.example", set()),
        ("   ", set()),
        ("\0", set()),
    ],
)
def test_what_is_found(filled: sa.Engine, q: str, numbers: set[int]) -> None:
    assert set(found(filled, q)) == {TITLES[n] for n in numbers}


def test_links_in_any_script(filled: sa.Engine) -> None:
    assert found(filled, "https://other.example/影") == ["https://other.example/影片?q=100%25"]


def test_an_id_and_its_start_in_any_case(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c, entry={"title": "x"})
    for q in (job.id, job.id.lower(), job.id[:12]):
        assert found(engine, q) == ["x"]
    assert found(engine, job.id + "0") == []


def test_a_title_that_changes_is_found_by_the_new_one(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        runs.describe(c, run.job, {"title": "first night train"}, now=NOW)
        runs.describe(c, run.job, {"title": "second night bus"}, now=NOW)
    assert found(engine, "night") == ["second night bus"]
    assert found(engine, "second night") == ["second night bus"]
    assert found(engine, "bus") == ["second night bus"]
    for gone in ("first", "train", "first night", "night train"):
        assert found(engine, gone) == []


def test_entries_of_a_list_are_found_at_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        entries = [{"url": f"https://m.example/{n}", "key": f"{n}", "title": f"episode {n}"}
                   for n in range(30)]  # fmt: skip
        collections.add_children(c, run, entries, now=NOW)
    assert found(engine, "episode 7") == ["episode 7"]
    assert len(found(engine, "episode")) == 30
    assert len(found(engine, "episode", parent_id=run.job.id)) == 30


def test_a_deleted_job_is_not_found_and_leaves_nothing(engine: sa.Engine) -> None:
    with write(engine) as c:
        kept = make_job(c, entry={"title": "night train"})
        gone = make_job(c, entry={"title": "night train 影片"})
        moves.delete(c, gone.id, now=NOW)
    for q in ("night", "night train", "影片", gone.id):
        assert found(engine, q) == (["night train"] if q.startswith("night") else [])
    with write(engine) as c:
        sweeps.done_many(c, sweeps.begin_many(c, [gone.id], now=NOW + 1))
        for column in (jobs_table.c.id, job_search.c.job_id, job_terms.c.job_id):
            assert set(c.execute(sa.select(column)).scalars()) == {kept.id}


def test_many_are_counted_and_moved_by_what_they_are_found_by(filled: sa.Engine) -> None:
    with read(filled) as c:
        assert count(c, Filter(q="real"), cap=99) == 2
        assert count(c, Filter(q="real"), cap=1) == 1
        assert count(c, Filter(q="猫在花园"), cap=99) == 1
        assert count(c, Filter(q="%"), cap=99) == 0
        (first, second) = ids_after(c, Filter(q="real"), after_id="", limit=99)
        assert ids_after(c, Filter(q="real"), after_id=first, limit=99) == [second]


@pytest.mark.parametrize(
    "title", ["\0", "half \ud83c", "x" * 5_000, "字" * 5_000, "\u1fb7" * 900, "\ufdfa" * 900, " "]
)
def test_any_title_is_taken(engine: sa.Engine, title: str) -> None:
    with write(engine) as c:
        make_job(c, entry={"title": title})
        run = run_at(c, Actor.PARSE)
        runs.describe(c, run.job, {"title": title}, now=NOW)
    assert len(found(engine, title[:200])) in {0, 2}


def test_a_title_of_nobody(engine: sa.Engine) -> None:
    with write(engine) as c:
        search.rename(c, "0" * 26, "a title")
    assert found(engine, "title") == []
