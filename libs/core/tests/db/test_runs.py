"""How runs end when they do not end well: handed back, tried again, lost with their worker."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from sluice_core.adapters.db import claims, jobs, liveness, moves, outbox, runs
from sluice_core.adapters.db.dead_letters import Filter, list_page
from sluice_core.adapters.db.engine import write
from sluice_core.domain.job import Job, JobError, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_testing.factories import (
    ERROR,
    NOW,
    make_collection,
    run_at,
    start_run,
)


def _now(c: sa.Connection, job_id: str) -> Job:
    job = jobs.get(c, job_id)
    assert job is not None
    return job


def test_hand_back_is_uncounted_and_asks_again_at_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.write_progress(c, run.job, Progress(60.0, 6, 10, 2.0, 2.0), now=NOW)
        job, order = runs.hand_back(c, run, now=NOW + 5)
        assert (job.status, job.waiting_for) == (Status.DOWNLOADING, WaitingFor.WORKER)
        assert job.tries == 0
        assert (job.progress.percent, job.progress.bytes_per_second) == (60.0, None)
        assert (order.epoch, order.due_at) == (run.job.epoch, NOW + 5)
        assert jobs.attempts_of(c, job.id)[-1].outcome == "handed_back"
        again = start_run(c, job.id)
    assert again.job.tries == 1
    assert again.job.epoch == run.job.epoch + 1


def test_retry_later_waits_in_the_database(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        job, order = runs.retry_later(c, run, ERROR, due_at=NOW + 600, now=NOW)
        assert (job.status, job.waiting_for) == (Status.DOWNLOADING, WaitingFor.RETRY)
        assert (job.retry_at, job.error, job.tries) == (NOW + 600, ERROR, 1)
        assert outbox.take_due(c, now=NOW + 599, older_than=0, limit=9) == []
        assert outbox.take_due(c, now=NOW + 600, older_than=5, limit=9) == [order]
        attempt = jobs.attempts_of(c, job.id)[-1]
        assert (attempt.outcome, attempt.error_code) == ("retry", "network")
        again = start_run(c, job.id)
    assert (again.job.tries, again.job.error, again.job.retry_at) == (2, None, None)


def test_runs_that_ended_so_are_counted_for_the_stage_and_since_the_job_was_wanted(
    engine: sa.Engine,
) -> None:
    busy = JobError("overloaded", "transient", "busy")
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        for n, error in enumerate((busy, busy, ERROR), 1):
            job, _ = runs.retry_later(c, run, error, due_at=NOW, counted=error is ERROR, now=NOW)
            assert job.tries == (error is ERROR)
            assert runs.retried_for(c, job, "overloaded") == min(n, 2)
            run = start_run(c, job.id)
        later = replace(job, wanted_at=NOW + 3600)
        assert runs.retried_for(c, later, "overloaded") == 0
        assert runs.retried_for(c, replace(job, stage=Actor.TRANSCODE), "overloaded") == 0


def test_tries_begin_anew_with_each_stage(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.retry_later(c, run, ERROR, due_at=NOW, now=NOW)
        run = start_run(c, run.job.id)
        assert run.job.tries == 2
        runs.advance(c, run, to=Actor.TRANSCODE, fields={}, now=NOW)
        assert start_run(c, run.job.id).job.tries == 1


def test_a_lost_worker_costs_no_try_but_is_remembered(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        lost = liveness.declare_lost(c, run.attempt_id, max_losses=2, sweep_at=NOW, now=NOW)
        assert lost is not None
        job, (order,) = lost
        assert (job.status, job.waiting_for) == (Status.DOWNLOADING, WaitingFor.WORKER)
        assert (job.tries, job.losses, job.epoch) == (0, 1, run.job.epoch + 1)
        assert order.epoch == job.epoch
        assert jobs.attempts_of(c, job.id)[-1].outcome == "lost"


def test_a_job_that_takes_workers_down_is_put_aside(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        for _ in range(2):
            liveness.declare_lost(c, run.attempt_id, max_losses=3, sweep_at=NOW, now=NOW)
            run = start_run(c, run.job.id)
        ended = liveness.declare_lost(c, run.attempt_id, max_losses=3, sweep_at=NOW + 7, now=NOW)
        assert ended is not None
        job, orders = ended
        assert job.status is Status.FAILED
        assert job.error is not None
        assert (job.error.code, job.error.error_class) == ("worker_lost", "manual")
        assert orders == []
        assert outbox.of_job(c, job.id) == []
        assert job.finished_at == NOW


def test_losses_after_progress_do_not_count(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        for _ in range(5):
            liveness.mark_progressed(c, run.attempt_id)
            lost = liveness.declare_lost(c, run.attempt_id, max_losses=1, sweep_at=NOW, now=NOW)
            assert lost is not None
            assert lost[0].losses == 0
            run = start_run(c, run.job.id)


def test_a_lost_media_child_is_a_loss_although_its_worker_lives(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        liveness.mark_progressed(c, run.attempt_id)
        job, (order,) = lose_child(c, run)
        assert (job.waiting_for, job.tries, job.losses) == (WaitingFor.WORKER, 0, 0)
        assert order.epoch == job.epoch == run.job.epoch
        for losses in (1, 2):
            run = start_run(c, job.id)
            job, (order,) = lose_child(c, run)
            assert (job.waiting_for, job.tries, job.losses) == (WaitingFor.WORKER, 0, losses)
        job, orders = lose_child(c, start_run(c, job.id))
        assert (job.status, orders) == (Status.FAILED, [])
        assert job.error is not None
        assert job.error.code == "worker_lost"
        last = jobs.attempts_of(c, job.id)[-1]
        assert (last.outcome, last.error_message) == ("child_lost", "signal 9")
        assert outbox.of_job(c, job.id) == []
        (letter,) = list_page(c, Filter(), before_id=None, limit=9)
        assert letter.job_id == job.id


def lose_child(c: sa.Connection, run: claims.Claim) -> tuple[Job, list[outbox.OutboxRow]]:
    return liveness.lose_child(c, run, "signal 9", max_losses=3, sweep_at=NOW, now=NOW)


def test_a_lost_child_that_is_put_aside_asks_its_parent(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (child,) = make_collection(c, 1)
        c.execute(sa.text("DELETE FROM outbox WHERE actor = 'settle'"))
        run = start_run(c, child.id)
        ended = liveness.declare_lost(c, run.attempt_id, max_losses=1, sweep_at=NOW, now=NOW)
        assert ended is not None
        (order,) = ended[1]
        assert (order.job_id, order.actor) == (parent.id, Actor.SETTLE)


def test_exhausted_tries_leave_a_dead_letter(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.fail(c, run, ERROR, dead=True, sweep_at=NOW, now=NOW)
        (letter,) = list_page(c, Filter(), before_id=None, limit=9)
    assert (letter.job_id, letter.queue) == (run.job.id, "download.default")
    assert letter.reason == "network: the connection failed"


def test_beats_rise_only_while_the_run_lives(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, other = run_at(c, Actor.PARSE), run_at(c, Actor.PARSE)
        liveness.beat(c, [run.attempt_id, other.attempt_id])
        liveness.beat(c, [run.attempt_id])
        beats = {r.id: r.beat for r in liveness.open_attempts(c)}
        assert beats == {run.attempt_id: 2, other.attempt_id: 1}
        runs.hand_back(c, run, now=NOW)
        liveness.beat(c, [run.attempt_id])
        assert [r.id for r in liveness.open_attempts(c)] == [other.attempt_id]
        assert jobs.attempts_of(c, run.job.id)[-1].beat == 2


def test_owners_show_epoch_and_state_of_what_exists(engine: sa.Engine) -> None:
    with write(engine) as c:
        run, gone = run_at(c, Actor.PARSE), run_at(c, Actor.PARSE)
        moves.delete(c, gone.job.id, now=NOW)
        owners = liveness.owners(c, [run.job.id, gone.job.id, "0" * 26])
    assert owners == {run.job.id: (1, Status.PARSING)}


def test_what_was_learned_stays(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        runs.describe(c, run.job, {"title": "影片 🎬 שלום", "duration": 1.5}, now=NOW)
        runs.retry_later(c, run, ERROR, due_at=NOW, now=NOW)
        job = _now(c, run.job.id)
    assert (job.title, job.duration) == ("影片 🎬 שלום", 1.5)
