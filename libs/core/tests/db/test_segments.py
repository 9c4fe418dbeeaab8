"""Segments of an encode that several slots share: each belongs to one open attempt at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import (
    claims,
    explain,
    figures,
    helping,
    jobs,
    liveness,
    moves,
    outbox,
    runs,
    segments,
    steering,
    sweeps,
    vitals,
)
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import attempts as attempts_table
from sluice_core.adapters.db.schema import dead_letters as letters_table
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.db.schema import segments as table
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import Actor
from sluice_testing.factories import ERROR, NOW, finish, message_of, run_at, start_run

MARK = "f" * 32
SIX = dict.fromkeys(range(6), 100)


def offer(c: sa.Connection, run: claims.Claim, **changed: object) -> list[outbox.OutboxRow]:
    asked: dict[str, object] = {"fingerprint": MARK, "missing": SIX, "helpers": 2} | changed
    return segments.offer(c, run, now=NOW, **asked)  # type: ignore[arg-type]


def help_by(c: sa.Connection, row: outbox.OutboxRow, worker: str = "w-2") -> claims.Claim | None:
    return helping.claim(c, message=message_of(row), worker=worker, now=NOW, attempt_id=new_id())


def shared(c: sa.Connection, helpers: int = 2) -> tuple[claims.Claim, list[claims.Claim]]:
    """A run, and those who help it."""
    run = run_at(c, Actor.TRANSCODE)
    found = [help_by(c, row) for row in offer(c, run, helpers=helpers)]
    return run, [claim for claim in found if claim is not None]


def take(c: sa.Connection, claim: claims.Claim, mark: str = MARK) -> int | None:
    return segments.take(c, claim.job.id, claim.attempt_id, fingerprint=mark)


def finished(c: sa.Connection, claim: claims.Claim, number: int, key: str = "k") -> bool:
    return segments.finish(c, claim.job.id, number, attempt_id=claim.attempt_id, key=key)


def told(c: sa.Connection, claim: claims.Claim, number: int) -> bool:
    return segments.report(c, claim.job.id, number, attempt_id=claim.attempt_id, encoded=7)


def lose(c: sa.Connection, claim: claims.Claim) -> object:
    return liveness.declare_lost(c, claim.attempt_id, max_losses=3, sweep_at=NOW, now=NOW)


def rows(c: sa.Connection) -> int:
    return c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_help_waits_in_the_bulk_lane_with_ids_only(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        first, second = offer(c, run)
        waiting = outbox.of_job(c, run.job.id)
    assert [(r.actor, r.queue, r.epoch) for r in (first, second)] == [
        (Actor.HELP, "transcode.bulk", run.job.epoch)
    ] * 2
    assert first.args().keys() <= {"job", "epoch", "traceparent"}
    assert {r.id for r in waiting} == {first.id, second.id}


@pytest.mark.parametrize(("missing", "asked"), [(1, 0), (2, 1), (3, 2), (6, 2)])
def test_never_more_help_than_the_missing_segments_but_one(
    engine: sa.Engine, missing: int, asked: int
) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        assert len(offer(c, run, missing=dict.fromkeys(range(missing), 9))) == asked


def test_each_segment_is_taken_once_by_whoever_races(engine: sa.Engine) -> None:
    many = dict.fromkeys(range(60), 1)
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        helpers = [help_by(c, row) for row in offer(c, run, missing=many, helpers=3)]
    taken: list[int] = []

    def race(claim: claims.Claim) -> None:
        while True:
            with write(engine) as c:
                number = take(c, claim)
            if number is None:
                return
            taken.append(number)

    threads = [threading.Thread(target=race, args=(claim,)) for claim in (run, *helpers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(taken) == dict.fromkeys(range(60), 1)


def test_a_segment_that_was_taken_back_is_refused_to_who_held_it(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (helper, _) = shared(c)
        number = take(c, helper)
        assert number == 0
        assert told(c, helper, 0)
        assert segments.take_back(
            c, run.job.id, 0, holder=helper.attempt_id, attempt_id=run.attempt_id
        )
        assert not told(c, helper, 0)
        assert not finished(c, helper, 0)
        assert finished(c, run, 0)
        first, *_ = segments.look(c, run.job.id)
        assert (first.done, first.holder) == (True, run.attempt_id)


def test_a_lost_helper_costs_its_segment_and_nothing_of_the_job(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (helper, _) = shared(c)
        assert take(c, helper) == 0
        assert take(c, run) == 1
        before = jobs.get(c, run.job.id)
        assert lose(c, helper) is None
        assert jobs.get(c, run.job.id) == before
        assert c.execute(sa.select(letters_table)).all() == []
        # It may wake up: it takes nothing more, and what it held is nobody's, then another's.
        assert take(c, helper) is None
        assert not told(c, helper, 0)
        assert not finished(c, helper, 0)
        assert take(c, run) == 0
        assert not finished(c, helper, 0)
        finish(c, run)
    assert before is not None
    assert (before.tries, before.losses, before.epoch) == (1, 0, run.job.epoch)


def test_the_next_run_finds_what_helpers_hold_and_stored(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (one, other) = shared(c)
        assert [take(c, claim) for claim in (run, one, other)] == [0, 1, 2]
        assert finished(c, other, 2, key="stored")
        lose(c, run)
        # They go on meanwhile.
        assert take(c, other) == 0
        again = start_run(c, run.job.id)
        # Two help already.
        assert offer(c, again) == []
        found = {s.number: (s.holder, s.done, s.key) for s in segments.look(c, run.job.id)}
        assert found[0] == (other.attempt_id, False, None)
        assert found[1] == (one.attempt_id, False, None)
        assert found[2] == (other.attempt_id, True, "stored")
        assert take(c, again) == 3
        assert finished(c, one, 1)


def test_another_plan_shares_nothing_with_the_one_before(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (helper, _) = shared(c)
        assert take(c, helper) == 0
        offer(c, run, fingerprint="e" * 32)
        assert not told(c, helper, 0)
        assert take(c, helper) is None
        assert take(c, helper, "e" * 32) == 0


def test_a_run_that_is_no_longer_the_job_s_offers_nothing(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        lose(c, run)
        with pytest.raises(StaleRunError):
            offer(c, run)
        assert rows(c) == 0


def test_orders_and_helpers_do_not_pile_up(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, helpers = shared(c)
        for _ in range(60):
            offer(c, run)
            first, second = helpers
            [row] = helping.end(c, first, outcome="ok", now=NOW, again=True)
            again = help_by(c, row)
            assert again is not None
            helpers = [second, again]
        offer(c, run)
        assert [r for r in outbox.of_job(c, run.job.id) if r.actor == "help"] == []
        assert len(liveness.open_attempts(c)) == 3
        kept = [r for r in jobs.attempts_of(c, run.job.id) if r.stage == "help"]
    assert len(kept) == 62


def replaced(c: sa.Connection, run: claims.Claim, helpers: int = 2) -> list[outbox.OutboxRow]:
    return segments.offer_places(c, run, helpers=helpers, now=NOW)


def test_who_was_lost_is_replaced_once_and_only_if_it_was_of_use(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (one, other) = shared(c)
        assert replaced(c, run) == []
        assert [take(c, claim) for claim in (one, other, other)] == [0, 1, 2]
        assert finished(c, one, 0)
        lose(c, one)
        [row] = replaced(c, run)
        assert replaced(c, run) == []
        third = help_by(c, row)
        assert third is not None
        # These two stored nothing.
        lose(c, other)
        assert replaced(c, run) == []
        helping.end(c, third, outcome="failed", error=ERROR, now=NOW)
        assert replaced(c, run) == []


def test_who_drains_at_its_first_segment_costs_no_place(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, helpers = shared(c, helpers=1)
        for _ in range(5):
            [helper] = helpers
            [row] = helping.end(c, helper, outcome="handed_back", now=NOW, again=True)
            again = help_by(c, row)
            assert again is not None
            helpers = [again]
        helping.end(c, helpers[0], outcome="handed_back", now=NOW, again=False)
        assert len(replaced(c, run, helpers=1)) == 1


def test_nobody_is_asked_by_a_late_run_or_for_the_last_segment(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        assert len(offer(c, run, helpers=0)) == 0
        assert take(c, run) == 0
        assert len(replaced(c, run, helpers=9)) == 4
        lose(c, run)
        assert replaced(c, run, helpers=9) == []
        again = start_run(c, run.job.id)
        assert [take(c, again) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert replaced(c, again) == []


def test_a_permit_is_good_once_and_for_its_own_job(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        other = run_at(c, Actor.TRANSCODE)
        row, second = offer(c, run)
        message = message_of(row)
        foreign = claims.Message(row.id, row.queue, other.job.id, row.epoch, NOW)
        unknown = claims.Message(new_id(), row.queue, new_id(), 3, NOW)
        for wrong in (foreign, unknown):
            assert helping.claim(c, message=wrong, worker="w", now=NOW, attempt_id="a") is None
        assert help_by(c, row) is not None
        assert helping.claim(c, message=message, worker="w", now=NOW, attempt_id="a") is None
        # The next run asks anew: what waits of the last one is of no use.
        lose(c, run)
        start_run(c, run.job.id)
        assert help_by(c, second) is None
        assert c.execute(sa.select(letters_table)).all() == []


def succeed(c: sa.Connection, run: claims.Claim) -> None:
    finish(c, run)


def fail(c: sa.Connection, run: claims.Claim) -> None:
    runs.fail(c, run, ERROR, dead=True, sweep_at=NOW, now=NOW)


def cancel(c: sa.Connection, run: claims.Claim) -> None:
    moves.cancel(c, run.job.id, now=NOW)


def quarantine(c: sa.Connection, run: claims.Claim) -> None:
    liveness.declare_lost(c, run.attempt_id, max_losses=1, sweep_at=NOW, now=NOW)


def delete(c: sa.Connection, run: claims.Claim) -> None:
    moves.delete(c, run.job.id, now=NOW)


@pytest.mark.parametrize("end", [succeed, fail, cancel, quarantine, delete])
def test_every_end_of_the_job_forgets_them(
    engine: sa.Engine, end: Callable[[sa.Connection, claims.Claim], None]
) -> None:
    with write(engine) as c:
        run, helpers = shared(c, helpers=1)
        helper = helpers[0]
        offer(c, run, helpers=3)
        assert take(c, helper) == 0
        end(c, run)
        assert rows(c) == 0
        assert [r for r in outbox.of_job(c, run.job.id) if r.actor == "help"] == []
        assert not told(c, helper, 0)
        helping.end(c, helper, outcome="failed", error=ERROR, now=NOW, again=True)
        ended = {r.id: r.outcome for r in jobs.attempts_of(c, run.job.id)}
        assert outbox.of_job(c, run.job.id) == []
    # Whatever it ran into: there was nothing to help with.
    assert ended[helper.attempt_id] == "canceled"


@pytest.mark.parametrize("end", [runs.hand_back, runs.retry_later])
def test_helpers_go_on_while_the_job_waits_for_its_next_run(
    engine: sa.Engine, end: Callable[..., object]
) -> None:
    with write(engine) as c:
        run, (helper, _) = shared(c)
        assert take(c, helper) == 0
        error: list[JobError] = [ERROR] if end is runs.retry_later else []
        due = {"due_at": NOW + 60} if error else {}
        end(c, run, *error, now=NOW, **due)
        assert told(c, helper, 0)
        assert finished(c, helper, 0)
        assert take(c, helper) == 1


def test_a_paused_queue_of_help_alone_is_not_what_a_job_waits_for(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        offer(c, run)
        _, order = runs.hand_back(c, run, now=NOW)
        steering.pause(c, "transcode.bulk", by="test", now=NOW)
        standing = explain.standing(c, run.job.id)
        assert standing is not None
        assert standing.paused == frozenset()
        steering.pause(c, order.queue, by="test", now=NOW)
        standing = explain.standing(c, run.job.id)
    assert standing is not None
    assert standing.paused == {order.queue}


def test_help_is_seen_as_work_and_never_as_the_job_s_own_run(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, (helper, _) = shared(c)
    with read(engine) as c:
        by_queue = figures.rows_by_queue(c, not_in_redis=[], now=NOW)
        assert by_queue["transcode.bulk"].running == 2
        assert {r.worker for r in liveness.open_attempts(c)} == {"worker-1", "w-2"}
        assert vitals.read(c, lease="x", now=NOW).in_progress["help"] == 2
        standing = explain.standing(c, run.job.id)
        assert standing is not None
        assert [a.stage for a in standing.attempts if a.ended_at is None] == [
            "transcode", "help", "help",
        ]  # fmt: skip
    with write(engine) as c:
        # A job that only its helpers are at is an orphan all the same.
        c.execute(
            sa.update(attempts_table)
            .where(attempts_table.c.id == run.attempt_id)
            .values(ended_at=NOW)
        )
        c.execute(sa.update(jobs_table).values(updated_at=NOW - 100))
        assert [
            r.actor for r in sweeps.adopt_orphans(c, older_than=NOW - 30, now=NOW, limit=9)
        ] == [Actor.TRANSCODE]
    assert helper.job.id == run.job.id
