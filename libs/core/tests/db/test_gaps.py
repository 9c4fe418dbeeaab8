"""A job that ends with gaps keeps what was fetched, so that a retry asks for the rest alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import (
    claims,
    collections,
    details,
    jobs,
    liveness,
    moves,
    ownership,
    runs,
    sweeps,
)
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.gaps import Gap, Span
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor
from sluice_core.domain.plan import Plan, Source
from sluice_core.domain.states import TERMINAL, Status
from sluice_core.domain.view import job_view
from sluice_testing.factories import (
    ERROR,
    NOW,
    PLAN,
    artifact,
    finish,
    last_run,
    make_collection,
    make_job,
    run_at,
    settle,
    start_run,
)

KEPT = 3600.0
GAP = Gap("video", "137", "not_found", "fragments", 3, 800, 12.0, (Span(21, 23, 80.0, 92.0),))
FETCHED = Source(
    format_id="137",
    kind="video",
    key="work/x/download.2/137.video.media",
    bytes=3,
    ext="mp4",
    gap=GAP,
    gaps_key="work/x/download.2/137.video.media.gaps",
)


def partial(c: sa.Connection, run: claims.Claim | None = None) -> Job:
    run = run or run_at(c, Actor.DOWNLOAD, allow_gaps=True)
    fields = {"sources": [FETCHED.to_json()]}
    runs.advance(c, run, to=Actor.TRANSCODE, fields=fields, now=NOW)
    run = start_run(c, run.job.id)
    job, _ = runs.succeed(
        c,
        run,
        files=[artifact(run)],
        fields={},
        expires_at=NOW + 86_400,
        gaps=[GAP],
        sweep_at=NOW + KEPT,
        now=NOW,
    )
    return job


def test_gaps_are_told_in_words_and_in_data(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = partial(c)
    with read(engine) as c:
        found = jobs.get(c, job.id)
    assert found is not None
    assert (found.status, found.gaps) == (Status.PARTIAL, (GAP,))
    assert found.request.allow_gaps
    assert found.error is not None
    assert found.error.message == "3 of 800 fragments of the pictures are missing: 1:20-1:32"


def test_a_retry_goes_on_with_the_download(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = partial(c)
        assert moves.retry(c, job.id, now=NOW)
        again = jobs.get(c, job.id)
    assert again is not None
    assert (again.status, again.stage) == (Status.DOWNLOADING, Actor.DOWNLOAD)
    assert again.plan is not None
    assert Plan.from_json(again.plan).fetched == (FETCHED,)
    with write(engine) as c:
        run = start_run(c, job.id)
        owner = ownership.owners(c, [job.id])[job.id]
    assert owner.keys >= {FETCHED.key, FETCHED.gaps_key, "work/x/parse.1/info.json"}
    assert owner.needs_download
    # Nothing is missing any more: nothing is kept for another retry.
    with write(engine) as c:
        sources = [Source("137", "video", "k", 4, "mp4").to_json()]
        runs.advance(c, run, to=Actor.TRANSCODE, fields={"sources": sources}, now=NOW)
        run = start_run(c, job.id)
        done, _ = runs.succeed(
            c, run, files=[artifact(run)], fields={}, expires_at=NOW + 86_400, now=NOW
        )
    assert (done.status, done.gaps, done.plan, done.error) == (Status.SUCCESS, (), None, None)


def fail(c: sa.Connection, run: claims.Claim) -> None:
    runs.fail(c, run, ERROR, dead=True, sweep_at=NOW + KEPT, now=NOW)


def cancel(c: sa.Connection, run: claims.Claim) -> None:
    moves.cancel(c, run.job.id, now=NOW)


def quarantine(c: sa.Connection, run: claims.Claim) -> None:
    liveness.declare_lost(c, run.attempt_id, max_losses=1, sweep_at=NOW + KEPT, now=NOW)


@pytest.mark.parametrize("end", [fail, cancel, quarantine])
def test_a_retry_that_does_not_succeed_takes_no_file_and_no_gap_of_it(
    engine: sa.Engine, end: Callable[[sa.Connection, claims.Claim], None]
) -> None:
    with write(engine) as c:
        job = partial(c)
        [had] = details.files_of(c, [job.id])[job.id]
        moves.retry(c, job.id, now=NOW)
        run = start_run(c, job.id)
        # They can be had meanwhile.
        assert details.files_of(c, [job.id])[job.id] == [had]
        assert run.job.gaps == (GAP,)
        end(c, run)
        [sweep] = sweeps.begin_many(c, [job.id], now=NOW + KEPT)
        assert had.key in sweep.keep
        assert details.files_of(c, [job.id])[job.id] == [had]
        ended = jobs.get(c, job.id)
    assert ended is not None
    assert (ended.status in TERMINAL, ended.gaps) == (True, (GAP,))
    # Files that nobody came for go at the end of the time that they were promised, and not before.
    assert ended.expires_at == job.expires_at == NOW + 86_400
    with write(engine) as c:
        assert sweeps.expire_files(c, now=NOW + 86_399, limit=9) == 0
        assert sweeps.expire_files(c, now=NOW + 86_400, limit=9) == 1
        assert details.files_of(c, [job.id]) == {}
        [sweep] = sweeps.begin_many(c, [job.id], now=NOW + 86_400)
        assert had.key not in sweep.keep


def test_nothing_of_a_job_that_runs_again_expires(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = partial(c)
        moves.retry(c, job.id, now=NOW + 86_399)
        assert sweeps.expire_files(c, now=NOW + 90_000, limit=9) == 0
        assert len(details.files_of(c, [job.id])[job.id]) == 1
        again = jobs.get(c, job.id)
    assert again is not None
    assert job_view(again)["expires_at"] is None


def test_what_was_fetched_is_kept_for_a_time(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = partial(c)
        assert sweeps.due_ids(c, now=NOW + KEPT - 1, limit=10) == []
        [sweep] = sweeps.begin_many(c, [job.id], now=NOW + KEPT)
        assert FETCHED.key not in sweep.keep
        swept = jobs.get(c, job.id)
    assert swept is not None
    assert (swept.plan, swept.gaps) == (None, (GAP,))
    with write(engine) as c:
        moves.retry(c, job.id, now=NOW + KEPT)
        again = jobs.get(c, job.id)
    assert again is not None
    assert again.status is Status.PENDING


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "of 1 entries 1 is there in part"),
        ([True], "of 2 entries 1 is there in part"),
        ([True, False], "of 3 entries 1 is there in part, 1 failed"),
    ],
)
def test_a_collection_is_no_more_whole_than_its_entries(
    engine: sa.Engine, others: list[bool], message: str
) -> None:
    with write(engine) as c:
        parent, [child, *rest] = make_collection(c, 1 + len(others), allow_gaps=True)
        runs.advance(c, start_run(c, child.id), to=Actor.DOWNLOAD, fields={"plan": PLAN}, now=NOW)
        partial(c, start_run(c, child.id))
        for other, well in zip(rest, others, strict=True):
            end = finish if well else fail
            end(c, last_run(c, other.id))
        ended = settle(c, parent.id)
        counts = details.child_counts(c, [parent.id])[parent.id]
    assert ended is not None
    assert ended.status is Status.PARTIAL
    assert ended.error is not None
    assert ended.error.message == message
    assert (counts.partial, counts.success) == (1, sum(others))
    assert counts.partial + counts.success + counts.failed == counts.total
    # Its retry asks for what is missing of the entry, and makes it whole.
    with write(engine) as c:
        assert moves.retry(c, parent.id, now=NOW)
        again = jobs.get(c, child.id)
        assert again is not None
        assert again.status is Status.DOWNLOADING
        for one in (child, *(o for o, well in zip(rest, others, strict=True) if not well)):
            finish(c, last_run(c, one.id))
        whole = settle(c, parent.id)
    assert whole is not None
    assert (whole.status, whole.error) == (Status.SUCCESS, None)


def test_entries_of_a_collection_are_asked_for_alike(engine: sa.Engine) -> None:
    with write(engine) as c:
        _parent, [child] = make_collection(c, 1, allow_gaps=True)
        other = make_job(c)
    assert child.request.allow_gaps
    assert not other.request.allow_gaps
    assert not collections.child_request(other, "https://media.example/1").allow_gaps
