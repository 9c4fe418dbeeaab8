"""Reading jobs back: every text as it came, every page once, every search by the letter."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice_core.adapters.db import changes, jobs, listing, moves, runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.listing import Filter
from sluice_core.domain.job import JobError, Progress, Request
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import Status, WaitingFor
from sluice_testing.factories import (
    NOW,
    fail,
    finish,
    make_collection,
    make_job,
    run_at,
)

TEXTS = [
    "影片 🎬",
    "שלום עולם",
    "a'b\"c\\d;--",
    "100% _sure_",
    "e\u0301 ≠ é",
    "👨‍👩‍👧",
    "\u202eevil",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was(engine: sa.Engine, text: str) -> None:
    request = Request(
        url=f"https://media.example/{text}",
        preset="p",
        lane=Lane.LOW,
        playlist="all",
        items="1-3",
        subtitles=("zh-Hans", "he"),
        not_before=NOW + 1,
        callback_url="https://example.org/hook",
        metadata={text: [text, 1, 1.5, None, True]},
    )
    with write(engine) as c:
        ((job, _order),) = jobs.insert_many(c, [jobs.NewJob(request)], now=NOW)
    assert job is not None
    with write(engine) as c:
        runs_job = make_job(c, entry={"title": text, "url": "x"}, entry_key="k", parent_id="p")
    with read(engine) as c:
        assert jobs.get(c, job.id) == job
        assert job.request == request
        assert jobs.get(c, runs_job.id).title == text  # type: ignore[union-attr]


@pytest.mark.parametrize("bad", ["nul \0 byte", "half \ud83c character"])
def test_a_new_job_is_told_as_it_is_stored(engine: sa.Engine, bad: str) -> None:
    """Nothing is read back after the insert."""
    with write(engine) as c:
        first = make_job(c, metadata={bad: [bad]}, api_key_id="k", not_before=NOW + 1)
        child = make_job(c, entry={"title": bad}, entry_key="e", parent_id=first.id)
    with read(engine) as c:
        assert (jobs.get(c, first.id), jobs.get(c, child.id)) == (first, child)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(max_size=60))
def test_any_text_of_a_site_can_be_stored(engine: sa.Engine, text: str) -> None:
    """Sites send NUL and half characters; they come back replaced, never as an error."""
    with write(engine) as c:
        run = run_at(c, Actor.PARSE, metadata={"t": text})
        job = runs.describe(
            c, run.job, {"title": text, "plan": {text: [text]}, "extractor": text}, now=NOW
        )
        failed, _ = runs.fail(
            c, run, JobError("internal", "transient", text * 40), dead=True, sweep_at=NOW, now=NOW
        )
    clean = text.replace("\0", "\ufffd")
    assert job.title == clean
    assert job.plan == {clean: [clean]}
    assert failed.error is not None
    assert failed.error.message == (clean * 40)[:500]


@pytest.mark.parametrize("bad", ["nul \0 byte", "half \ud83c character", "\udfff"])
def test_text_that_no_database_takes_is_mended(engine: sa.Engine, bad: str) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        job = runs.describe(c, run.job, {"title": bad, "plan": {"a": [bad]}}, now=NOW)
    assert job.title is not None
    assert "\ufffd" in job.title
    assert job.plan == {"a": [job.title]}


def test_words_too_long_for_their_column_are_cut(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        job = runs.describe(c, run.job, {"extractor": "x" * 300}, now=NOW)
        failed, _ = runs.fail(
            c, run, JobError("internal", "transient", "y" * 900), dead=True, sweep_at=NOW, now=NOW
        )
    assert job.extractor == "x" * 128
    assert failed.error is not None
    assert failed.error.message == "y" * 500


def test_figures_beyond_four_gigabytes(engine: sa.Engine) -> None:
    progress = Progress(33.3, 5_000_000_000, 15_000_000_000, 1e9, 10.0)
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        assert runs.write_progress(c, run.job, progress, now=NOW).progress == progress


def test_pages_show_every_job_once_newest_first(engine: sa.Engine) -> None:
    with write(engine) as c:
        ids = [make_job(c).id for _ in range(25)]
        seen: list[str] = []
        while page := listing.list_page(c, Filter(), before_id=seen[-1] if seen else None, limit=7):
            seen += [job.id for job in page]
            # What comes in meanwhile moves nothing.
            make_job(c)
    assert seen == sorted(ids, reverse=True)


def test_filters(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (child, other) = make_collection(c, 2, preset="720p")
        moves.cancel(c, other.id, now=NOW + 50)
        mine = make_job(c, api_key_id="key-1")
        gone = make_job(c)
        moves.delete(c, gone.id, now=NOW)

        def ids(**fields: object) -> set[str]:
            where = Filter(**fields)  # type: ignore[arg-type]
            return {j.id for j in listing.list_page(c, where, before_id=None, limit=99)}

        assert ids() == {parent.id, child.id, other.id, mine.id}
        assert ids(status=[Status.CANCELED, Status.DOWNLOADING]) == {parent.id, other.id}
        assert ids(parent_id=parent.id) == {child.id, other.id}
        assert ids(preset="720p") == {parent.id, child.id, other.id}
        assert ids(since=NOW + 1) == {other.id}
        assert ids(api_key_id="key-1") == {mine.id}
        assert ids(roots_only=True) == {parent.id, mine.id}


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("影片", {"影片 🎬 合集"}),
        ("🎬", {"影片 🎬 合集"}),
        ("100%", {"100% real"}),
        ("100", {"100% real", "100 percent real"}),
        ("%", set()),
        ("_", set()),
        ("real", {"100% real", "100 percent real"}),
        ("REAL", {"100% real", "100 percent real"}),
        ("eal", set()),
        ("a\\b", {"a\\b"}),
        ("o'", {"o'Brien"}),
        ("https://media.example/q", {"100% real"}),
        ("", {"影片 🎬 合集", "100% real", "100 percent real", "a\\b", "o'Brien"}),
    ],
)
def test_search_takes_every_sign_by_the_letter(engine: sa.Engine, q: str, found: set[str]) -> None:
    titles = ["影片 🎬 合集", "100% real", "100 percent real", "a\\b", "o'Brien"]
    with write(engine) as c:
        for n, title in enumerate(titles):
            url = "https://media.example/q" if n == 1 else f"https://media.example/{n}"
            make_job(c, url=url, entry={"title": title})
        page = listing.list_page(c, Filter(q=q), before_id=None, limit=99)
    assert {job.title for job in page} == found


def test_search_by_id_in_any_case(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        page = listing.list_page(c, Filter(q=job.id.lower()), before_id=None, limit=9)
        assert [j.id for j in page] == [job.id]


def test_finding_by_key_and_id(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c, dedup_key="k")
        assert jobs.by_dedup_key(c, "k") == job
        assert jobs.by_dedup_key(c, "other") is None
        assert jobs.get_many(c, [job.id, "0" * 26]) == {job.id: job}
        moves.delete(c, job.id, now=NOW)
        assert jobs.by_dedup_key(c, "k") is None
        assert jobs.get_many(c, [job.id]) == {}


def test_a_finished_job_stands_for_the_same_request_and_a_failed_one_does_not(
    engine: sa.Engine,
) -> None:
    with write(engine) as c:
        good = finish(c, run_at(c, Actor.TRANSCODE, dedup_key="good"))
        fail(c, run_at(c, Actor.PARSE, dedup_key="bad"))
        assert jobs.by_dedup_key(c, "good") == good
        assert jobs.by_dedup_key(c, "bad") is None
        jobs.extend_expiry(c, good.id, NOW + 9e6)
        jobs.extend_expiry(c, good.id, NOW + 5)
        assert jobs.get(c, good.id).expires_at == NOW + 9e6  # type: ignore[union-attr]


def test_a_job_for_later_waits_for_its_time(engine: sa.Engine) -> None:
    with write(engine) as c:
        later = make_job(c, not_before=NOW + 60)
        past = make_job(c, not_before=NOW - 60)
    assert later.waiting_for is WaitingFor.TIME
    assert past.waiting_for is WaitingFor.WORKER


def test_deleting_a_collection_hides_its_children(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, children = make_collection(c, 2)
        assert moves.delete(c, parent.id, now=NOW)
        assert not moves.delete(c, parent.id, now=NOW)
        assert jobs.get_many(c, [parent.id, *(child.id for child in children)]) == {}


def test_changes_come_oldest_first(engine: sa.Engine) -> None:
    with write(engine) as c:
        ids = [make_job(c, now=NOW + n).id for n in range(4)]
        found = changes.since(c, NOW + 1, limit=2)
    assert [change.job_id for change in found] == ids[1:3]


def test_every_write_raises_the_version(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        versions = [run.job.version]
        versions.append(runs.write_progress(c, run.job, Progress(), now=NOW).version)
        versions.append(runs.describe(c, run.job, {"title": "t"}, now=NOW).version)
        versions.append(runs.hand_back(c, run, now=NOW)[0].version)
    assert versions == sorted(set(versions))
