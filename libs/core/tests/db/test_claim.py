"""A job is won by compare-and-set on its epoch: twice is once."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import claims, jobs, liveness, moves, outbox, runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_testing.database import until_blocked
from sluice_testing.factories import (
    NOW,
    fail,
    make_job,
    message_of,
    next_order,
    run_at,
    start_run,
)


def test_a_claim_starts_the_run(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        row = next_order(c, job.id)
        outbox.mark_published(c, [row.id], NOW + 1)
        won = claims.claim(c, stage=Actor.PARSE, message=message_of(row), worker="w-7", now=NOW + 2)
    assert won is not None
    assert (job.status, job.epoch, job.waiting_for) == (Status.PENDING, 0, WaitingFor.WORKER)
    assert (won.job.status, won.job.epoch, won.job.waiting_for) == (Status.PARSING, 1, None)
    assert (won.job.tries, won.number) == (1, 1)
    assert won.job.version > job.version
    with read(engine) as c:
        (attempt,) = jobs.attempts_of(c, job.id)
        assert outbox.of_job(c, job.id) == []
    assert (attempt.worker, attempt.epoch, attempt.message_id) == ("w-7", 1, row.id)
    assert (attempt.claimed_at, attempt.ended_at, attempt.publishes) == (NOW + 2, None, 1)


def test_fifty_rounds_of_two_claims_have_one_winner_each(engine: sa.Engine) -> None:
    barrier = threading.Barrier(2, timeout=60)
    wins: list[list[str]] = []
    with write(engine) as c:
        ids = [make_job(c).id for _ in range(50)]
        messages = [message_of(next_order(c, job_id)) for job_id in ids]

    def race(worker: str) -> None:
        for message, winners in zip(messages, wins, strict=True):
            barrier.wait()
            with write(engine) as c:
                won = claims.claim(c, stage=Actor.PARSE, message=message, worker=worker, now=NOW)
            if won is not None:
                winners.append(worker)

    wins.extend([] for _ in ids)
    threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(winners) for winners in wins] == [1] * 50
    with read(engine) as c:
        assert len(liveness.open_attempts(c)) == 50


def test_late_and_doubled_messages_win_nothing(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        message = message_of(next_order(c, job.id))
        run = start_run(c, job.id)
        assert _claim(c, Actor.PARSE, message) is None
        assert _claim(c, Actor.PARSE, replace(message, epoch=9)) is None
        assert _claim(c, Actor.DOWNLOAD, replace(message, epoch=run.job.epoch)) is None
        assert _claim(c, Actor.PARSE, replace(message, job_id="0" * 26)) is None
        fail(c, run)
        assert _claim(c, Actor.PARSE, replace(message, epoch=run.job.epoch)) is None


def test_a_message_that_a_stranger_named_is_claimed_once_as_any(engine: sa.Engine) -> None:
    with write(engine) as c:
        message = replace(message_of(next_order(c, make_job(c).id)), id="m" * 36)
        claim = _claim(c, Actor.PARSE, message)
        assert claim is not None
        assert [attempt.message_id for attempt in jobs.attempts_of(c, claim.job.id)] == ["m" * 26]
        assert _claim(c, Actor.PARSE, message) is None


def test_a_deleted_job_is_not_claimed(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        message = message_of(next_order(c, job.id))
        moves.delete(c, job.id, now=NOW)
        assert _claim(c, Actor.PARSE, replace(message, epoch=1)) is None


def test_a_job_that_is_canceled_while_its_message_is_put_back_is_not_ordered_again(
    engine: sa.Engine,
) -> None:
    with write(engine) as c:
        job = make_job(c)
        message = message_of(next_order(c, job.id))
    ordered: list[outbox.OutboxRow | None] = []

    def put_back() -> None:
        with write(engine) as c:
            later = NOW + 9
            ordered.append(
                claims.postpone(
                    c, stage=Actor.PARSE, message=message, due_at=later, shown=False, now=NOW
                )
            )

    thread = threading.Thread(target=put_back)
    with write(engine) as c:
        moves.cancel(c, job.id, now=NOW)
        thread.start()
        until_blocked(engine)
    thread.join(60)
    assert ordered == [None]
    with read(engine) as c:
        # An order that no claim can take would be published again every minute, for ever.
        assert outbox.of_job(c, job.id) == []


@pytest.mark.parametrize("stage", [Actor.PARSE, Actor.DOWNLOAD, Actor.TRANSCODE])
def test_attempts_count_per_stage(engine: sa.Engine, stage: Actor) -> None:
    with write(engine) as c:
        run = run_at(c, stage)
        assert run.number == 1
        runs.hand_back(c, run, now=NOW)
        assert start_run(c, run.job.id).number == 2


def _claim(c: sa.Connection, stage: Actor, message: claims.Message) -> claims.Claim | None:
    return claims.claim(c, stage=stage, message=message, worker="late", now=NOW)
