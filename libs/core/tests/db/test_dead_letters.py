"""Dead letters: capped, counted, found again, sent back by a person, and gone with their job."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import (
    counters,
    dead_letters,
    jobs,
    moves,
    outbox,
    requeue,
    runs,
    sweeps,
)
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.schema import dead_letters as table
from sluice_core.adapters.ids import new_id
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_testing.factories import ERROR, NOW, finish, make_job, run_at


def add(c: sa.Connection, *, queue: str = "download.bulk", job_id: str | None = None) -> str:
    return dead_letters.add(c, queue=queue, job_id=job_id, reason="r", payload="p", now=NOW)


def exhaust(c: sa.Connection, stage: Actor) -> tuple[str, str]:
    """A job that ran out of tries, and its letter."""
    run = run_at(c, stage)
    runs.fail(c, run, ERROR, dead=True, sweep_at=NOW + 60, now=NOW)
    (letter,) = dead_letters.list_page(
        c, dead_letters.Filter(job_id=run.job.id), before_id=None, limit=9
    )
    return run.job.id, letter.id


def test_the_oldest_goes_when_the_cap_is_passed_and_is_counted(engine: sa.Engine) -> None:
    ids = [new_id() for _ in range(dead_letters.CAP)]
    rows = [
        {"id": i, "queue": "q", "job_id": None, "reason": "r", "payload": "", "created_at": NOW}
        for i in ids
    ]
    with write(engine) as c:
        c.execute(sa.insert(table), rows)
    with write(engine) as c:
        new = [add(c), add(c)]
        kept = c.execute(sa.select(table.c.id).order_by(table.c.id)).scalars().all()
        assert kept == [*ids[2:], *new]
        assert counters.read(c, counters.DEAD_LETTERS_DROPPED) == 2


def test_a_reason_is_cut(engine: sa.Engine) -> None:
    with write(engine) as c:
        dead_letters.add(c, queue="q", job_id=None, reason="é" * 900, payload="x" * 9000, now=NOW)
        (letter,) = dead_letters.list_page(c, dead_letters.Filter(), before_id=None, limit=9)
    assert letter.reason == "é" * 500
    assert len(letter.payload) == dead_letters.MAX_PAYLOAD


def test_pages_and_filters(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        first = add(c, queue="download.bulk", job_id=job.id)
        second = add(c, queue="download.high")
        third = add(c, queue="download")
        other = add(c, queue="parse.high")

        def ids(before: str | None = None, limit: int = 9, **where: str) -> list[str]:
            page = dead_letters.list_page(
                c, dead_letters.Filter(**where), before_id=before, limit=limit
            )
            return [x.id for x in page]

        assert ids() == [other, third, second, first]
        assert ids(limit=2) == [other, third]
        assert ids(before=third, limit=2) == [second, first]
        assert ids(queue="download") == [third, second, first]
        assert ids(queue="download.high") == [second]
        assert ids(queue="down%") == []
        assert ids(job_id=job.id) == [first]


@pytest.mark.parametrize("stage", [Actor.PARSE, Actor.DOWNLOAD, Actor.TRANSCODE])
def test_requeue_is_a_retry_of_the_job(engine: sa.Engine, stage: Actor) -> None:
    with write(engine) as c:
        job_id, letter_id = exhaust(c, stage)
        done = requeue.requeue(c, letter_id, now=NOW + 1)
        assert done is not None
        assert [(o.job_id, o.actor) for o in done.orders] == [(job_id, stage)]
        job = jobs.get(c, job_id)
        assert job is not None
        assert (job.tries, job.error) == (0, None)
        assert dead_letters.get(c, letter_id) is None
        assert requeue.requeue(c, letter_id, now=NOW + 2) is None


def test_a_retry_by_hand_leaves_no_letter_behind(engine: sa.Engine) -> None:
    with write(engine) as c:
        job_id, letter_id = exhaust(c, Actor.DOWNLOAD)
        assert moves.retry(c, job_id, now=NOW + 1)
        assert dead_letters.get(c, letter_id) is None


def test_a_letter_of_a_callback_asks_for_the_callback_alone(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        job = finish(c, run)
        letter_id = add(c, queue="notify.default", job_id=job.id)
        done = requeue.requeue(c, letter_id, now=NOW + 1)
        assert done is not None
        assert [o.actor for o in done.orders] == [Actor.NOTIFY]
        assert [r.queue for r in outbox.of_job(c, job.id)] == ["notify.default"]
        after = jobs.get(c, job.id)
        assert after is not None
        assert (after.status, after.epoch) == (Status.SUCCESS, job.epoch)


def test_what_can_not_run_again_stays_with_a_sentence(engine: sa.Engine) -> None:
    with write(engine) as c:
        unreadable = add(c)
        gone = add(c, job_id=new_id())
        done = add(c, job_id=finish(c, run_at(c, Actor.TRANSCODE)).id)
    for letter_id, words in [(unreadable, "read"), (gone, "exist"), (done, "SUCCESS")]:
        with pytest.raises(requeue.NotRequeueableError, match=words), write(engine) as c:
            requeue.requeue(c, letter_id, now=NOW)
        with write(engine) as c:
            assert dead_letters.get(c, letter_id) is not None


def test_drop_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        letter_id = add(c)
        assert dead_letters.drop(c, letter_id)
        assert not dead_letters.drop(c, letter_id)


def test_letters_go_with_the_row_of_their_job(engine: sa.Engine) -> None:
    with write(engine) as c:
        job_id, letter_id = exhaust(c, Actor.PARSE)
        moves.delete(c, job_id, now=NOW)
        sweep = sweeps.begin(c, job_id, now=NOW + 1)
        assert sweep is not None
        assert sweep.delete_row
        sweeps.done(c, sweep)
        assert dead_letters.get(c, letter_id) is None
