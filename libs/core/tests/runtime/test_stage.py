# ruff: noqa: ARG001  # handlers have a fixed signature
"""Whatever a handler or the world does, a run ends once, in one transaction, with its own files."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from dataclasses import replace
from threading import Event

import pytest

from sluice_core.adapters.db import claims, liveness, moves, sweeps
from sluice_core.adapters.db.engine import write
from sluice_core.domain.errors import ErrorClass, HandBackError, SluiceError
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.runtime.children import ExecSpec, ForkServer, child_environment, runner
from sluice_core.runtime.children import run as run_child
from sluice_core.runtime.run import Advance, Expanded, Finished
from sluice_testing.factories import fail
from sluice_testing.waiting import until


def advance(run):
    return Advance(Actor.TRANSCODE, {"sources": [{"key": "k"}]})


def never(run):
    raise AssertionError("this message must start no run")


def waiting(rig, queue="download.default"):
    return rig.deps().broker.waiting([queue])[queue]


# -- what starts no run -------------------------------------------------------------------------


def test_an_old_message_starts_nothing(rig):
    job, message = rig.job_at()

    def handle(run):
        raise SluiceError(code="network")

    rig.run(handle, message)
    before = rig.now(job)
    assert before.waiting_for is WaitingFor.RETRY  # for the same stage, at a later epoch
    rig.run(never, message)
    rig.run(never, replace(message, epoch=message.epoch + 7))
    assert rig.now(job) == before
    assert rig.letters() == []


def test_a_message_of_a_finished_job_starts_nothing(rig):
    job, message = rig.job_at()
    with write(rig.engine) as c:
        won = claims.claim(c, stage=Actor.DOWNLOAD, message=message, worker="w", now=time.time())
        fail(c, won, now=time.time())
    rig.run(never, replace(message, epoch=won.job.epoch))
    assert rig.now(job).status is Status.FAILED
    assert rig.letters() == []


def test_a_message_of_a_deleted_job_starts_nothing(rig):
    job, message = rig.job_at()
    with write(rig.engine) as c:
        moves.delete(c, job.id, now=time.time())
    rig.run(never, message)
    rig.run(never, replace(message, epoch=message.epoch + 1))
    assert rig.letters() == []
    with write(rig.engine) as c:
        sweeps.done(c, sweeps.begin(c, job.id, now=time.time()))
    # Nothing is left of it: its message is late all the same, and nobody needs to look at it.
    rig.run(never, message)
    assert rig.letters() == []


@pytest.mark.parametrize("job_id", ["0" * 26, "3f2b8c1e-0000-4000-8000-000000000000"])
def test_a_message_of_an_unknown_job_becomes_a_dead_letter(rig, job_id):
    _, message = rig.job_at()
    rig.run(never, replace(message, job_id=job_id))
    (letter,) = rig.letters()
    assert (letter.reason, letter.job_id, letter.queue) == (
        "unknown job",
        job_id[:26],
        "download.default",
    )
    assert message.id in letter.payload
    assert job_id in letter.payload


def test_a_message_of_another_stage_starts_nothing(rig):
    job, message = rig.job_at(Actor.DOWNLOAD)
    rig.run(never, message, Actor.PARSE)
    assert rig.now(job).waiting_for is WaitingFor.WORKER


# -- outcomes -----------------------------------------------------------------------------------


def test_advance_orders_the_next_stage(rig, put):
    job, message = rig.job_at()

    def handle(run):
        put(run)
        return advance(run)

    rig.run(handle, message)
    now = rig.now(job)
    assert (now.status, now.waiting_for, now.tries) == (Status.MERGING, WaitingFor.WORKER, 0)
    assert rig.attempts(job)[-1].outcome == "ok"
    assert waiting(rig, "transcode.default") == 1
    assert len(rig.keys(job)) == 1
    assert list(rig.loaded.store.scratch_dir.iterdir()) == []


def test_finished_points_at_its_files(rig, put):
    job, message = rig.job_at(Actor.TRANSCODE)
    rig.run(lambda run: Finished([put(run, final=True)]), message, Actor.TRANSCODE)
    assert rig.now(job).status is Status.SUCCESS
    assert rig.keys(job) == [f"files/{job.id}/transcode.{message.epoch + 1}/film.mp4"]


def test_expanded_waits_for_its_children(rig):
    job, message = rig.job_at(Actor.PARSE)

    def handle(run):
        run.add_children([{"url": "https://media.example/1", "key": "1"}])
        return Expanded({"title": "a list"})

    rig.run(handle, message, Actor.PARSE)
    now = rig.now(job)
    assert (now.waiting_for, now.title, now.expansion_done) == (
        WaitingFor.CHILDREN,
        "a list",
        True,
    )
    assert waiting(rig, "parse.bulk") == 1
    owners = rig.deps().broker.client.hvals("dramatiq:parse.bulk.owners")
    assert owners == [job.id.encode()]  # collections take turns
    assert waiting(rig, "settle.default") == 1


def test_a_transient_failure_is_tried_again_later(rig, put):
    job, message = rig.job_at()

    def handle(run):
        put(run)
        raise SluiceError(code="network", retry_after=100)

    began = time.time()
    rig.run(handle, message)
    ended = time.time()
    now = rig.now(job)
    assert (now.status, now.waiting_for, now.error.code) == (
        Status.DOWNLOADING,
        WaitingFor.RETRY,
        "network",
    )
    assert began + 100 <= rig.order(job).due_at <= ended + 102
    assert rig.order(job).epoch == now.epoch
    assert waiting(rig) == 0
    assert rig.keys(job) == []


def test_a_permanent_failure_ends_the_job_and_leaves_no_letter(rig):
    job, message = rig.job_at()

    def handle(run):
        raise SluiceError(code="not_found")

    rig.run(handle, message)
    assert (rig.now(job).status, rig.now(job).error.code) == (Status.FAILED, "not_found")
    assert rig.letters() == []


def test_the_last_try_leaves_a_dead_letter(rig):
    job, message = rig.job_at()
    tries = []

    def handle(run):
        tries.append(run.claim.job.tries)
        raise SluiceError(code="network")

    for _ in range(4):
        rig.run(handle, message)
        message = replace(message, epoch=rig.now(job).epoch)
    assert tries == [1, 2, 3, 4]
    assert rig.now(job).status is Status.FAILED
    assert [letter.reason[:8] for letter in rig.letters()] == ["network:"]


def test_a_bug_in_a_handler_is_an_internal_failure(rig):
    job, message = rig.job_at()

    def handle(run):
        raise ZeroDivisionError("oops")

    rig.run(handle, message)
    error = rig.now(job).error
    assert (error.code, error.error_class) == ("internal", ErrorClass.TRANSIENT)
    assert "oops" in error.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_in_a_handler_is_no_bug(rig, number):
    job, message = rig.job_at()

    def handle(run):
        raise OSError(number, os.strerror(number))

    rig.run(handle, message)
    assert rig.now(job).error.code == "disk_full"


def test_a_scratch_folder_that_cannot_be_made_is_a_failure_and_no_loss(rig):
    job, message = rig.job_at()
    scratch = rig.loaded.store.scratch_dir
    scratch.rename(scratch.with_name("away"))
    scratch.touch()
    rig.run(never, message)
    found = rig.now(job)
    assert (found.error.code, found.waiting_for) == ("storage_error", WaitingFor.RETRY)
    assert [attempt.outcome for attempt in rig.attempts(job)][-1] == "retry"


def test_an_outcome_that_cannot_be_stored_is_a_failure_and_its_files_go(rig, put):
    job, message = rig.job_at(Actor.TRANSCODE)

    def handle(run):
        put(run, final=True)
        return Finished([])

    rig.run(handle, message, Actor.TRANSCODE)
    assert rig.now(job).error.code == "internal"
    assert rig.keys(job) == []


def test_trouble_after_the_commit_is_no_failure_of_the_run(new_rig, engine, redis_url, put):
    rig = new_rig(engine, redis_url, SLUICE_FAILPOINTS="run.after_commit=raise")
    job, message = rig.job_at(Actor.TRANSCODE)
    with pytest.raises(SluiceError, match="failpoint"):
        rig.run(lambda run: Finished([put(run, final=True)]), message, Actor.TRANSCODE)
    assert rig.now(job).status is Status.SUCCESS
    assert len(rig.keys(job)) == 1


# -- runs that are no longer the job's owner ------------------------------------------------------


def test_a_run_that_lost_its_job_removes_its_own_files_alone(rig, put):
    job, message = rig.job_at()
    other = f"work/{job.id}/download.{message.epoch + 2}/film.mp4"

    def handle(run):
        put(run)
        rig.storage.put(other, run.scratch / "film.mp4")
        with write(rig.engine) as c:
            liveness.declare_lost(
                c, run.claim.attempt_id, max_losses=9, sweep_at=0, now=time.time()
            )
        run.progress(Progress(percent=50.0))
        raise AssertionError("a stale run may not go on")

    rig.run(handle, message)
    assert rig.keys(job) == [other]
    assert rig.now(job).progress.percent is None
    assert rig.attempts(job)[-1].outcome == "lost"


def test_a_canceled_run_ends_and_leaves_the_job_canceled(rig, put):
    job, message = rig.job_at()

    def handle(run):
        put(run)
        with write(rig.engine) as c:
            moves.cancel(c, job.id, now=time.time())
        return advance(run)

    rig.run(handle, message)
    assert rig.now(job).status is Status.CANCELED
    assert rig.keys(job) == []


def test_a_cancel_is_told_to_the_run(rig):
    job, message = rig.job_at()

    def handle(run):
        with write(rig.engine) as c:
            moves.cancel(c, job.id, now=time.time())
        run.raise_for(until(run.stop))
        raise AssertionError("it was told to stop")

    rig.run(handle, message)
    assert rig.now(job).status is Status.CANCELED


# -- children that somebody else ended -------------------------------------------------------------


def sleep_in_a_child(run, act):
    """Run a command, and `act` on its process id once it has begun."""

    def begun(pid, started):
        run.on_child(pid, started)
        act(pid)

    spec = ExecSpec(
        argv=[sys.executable, "-c", "import time; time.sleep(60)"],
        scratch=run.scratch,
        env=child_environment(home=run.scratch, base={}),
    )
    result = run_child(spec, on_line=print, deadline_s=60, stop=lambda: None, on_start=begun)
    assert result.was_lost
    raise run.lost_child(result)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_killed_child_costs_no_try_and_what_it_fetched_stays(rig):
    job, message = rig.job_at()

    def handle(run):
        (run.scratch / "part").write_bytes(b"abc")
        sleep_in_a_child(run, kill)

    rig.run(handle, message)
    now = rig.now(job)
    assert (now.status, now.waiting_for) == (Status.DOWNLOADING, WaitingFor.WORKER)
    assert (now.tries, now.losses) == (0, 1)
    assert rig.attempts(job)[-1].outcome == "child_lost"
    assert waiting(rig) == 1
    folder = f"{job.id}.download.{now.epoch}"
    assert (rig.loaded.store.scratch_dir / folder / "part").exists()


@pytest.fixture
def server(tmp_path):
    env = child_environment(home=tmp_path, base={})
    with ForkServer(module=None, env=env, cwd=tmp_path) as started:
        yield started


def test_a_child_that_cannot_be_started_for_now_costs_no_try(rig, server, monkeypatch):
    """As of a machine with so much to do that a minute passes before a process begins."""
    monkeypatch.setattr(runner, "START_TIMEOUT", 0.5)
    job, message = rig.job_at()
    os.kill(server.pid, signal.SIGSTOP)

    def handle(run):
        spec = ExecSpec(
            argv=["true"],
            scratch=run.scratch,
            env=child_environment(home=run.scratch, base={}),
            server=server,
        )
        assert run_child(spec, on_line=print, deadline_s=60).ok
        return advance(run)

    rig.run(handle, message)
    now = rig.now(job)
    assert (now.status, now.waiting_for) == (Status.DOWNLOADING, WaitingFor.RETRY)
    assert (now.tries, now.losses, now.error.code) == (0, 0, "overloaded")
    # Whoever is stopped was told to go on: nobody else meets it so.
    monkeypatch.setattr(runner, "START_TIMEOUT", 30.0)
    rig.run(handle, replace(message, epoch=now.epoch))
    assert rig.now(job).status is Status.MERGING


@pytest.mark.parametrize("told", ["drain", "ending"])
def test_a_child_that_ends_with_its_worker_is_handed_back(rig, told):
    """One signal to all processes of a unit, while the worker's runs may still go on or not."""
    job, message = rig.job_at()

    def end_both(pid):
        getattr(rig.deps(), told).set()
        kill(pid)

    rig.run(lambda run: sleep_in_a_child(run, end_both), message)
    now = rig.now(job)
    assert (now.tries, now.losses) == (0, 0)
    assert rig.attempts(job)[-1].outcome == "handed_back"


def test_a_child_killed_after_a_cancel_leaves_the_job_canceled(rig):
    job, message = rig.job_at()

    def cancel_and_kill(pid):
        with write(rig.engine) as c:
            moves.cancel(c, job.id, now=time.time())
        kill(pid)

    rig.run(lambda run: sleep_in_a_child(run, cancel_and_kill), message)
    assert rig.now(job).status is Status.CANCELED
    assert rig.attempts(job)[-1].outcome == "canceled"
    assert waiting(rig) == 0


# -- hand-back -----------------------------------------------------------------------------------


def test_a_drain_hands_back_uncounted_and_keeps_what_was_fetched(rig):
    job, message = rig.job_at()
    deps = rig.deps()

    def handle(run):
        (run.scratch / "part").write_bytes(b"abc")
        deps.drain.set()
        run.check()

    rig.run(handle, message)
    now = rig.now(job)
    assert (now.status, now.waiting_for, now.tries) == (
        Status.DOWNLOADING,
        WaitingFor.WORKER,
        0,
    )
    assert rig.order(job).epoch == now.epoch == message.epoch + 1
    assert rig.attempts(job)[-1].outcome == "handed_back"
    assert waiting(rig) == 1
    folder = f"{job.id}.download.{now.epoch}"
    assert (rig.loaded.store.scratch_dir / folder / "part").exists()


def test_a_hand_back_after_a_cancel_orders_nothing(rig):
    job, message = rig.job_at()

    def handle(run):
        with write(rig.engine) as c:
            moves.cancel(c, job.id, now=time.time())
        raise HandBackError

    rig.run(handle, message)
    assert rig.now(job).status is Status.CANCELED
    assert waiting(rig) == 0
    assert list(rig.loaded.store.scratch_dir.iterdir()) == []


# -- through a worker ----------------------------------------------------------------------------


def test_a_published_job_runs_and_its_message_is_gone(rig):
    job, _ = rig.job_at()
    rig.worker(advance)
    rig.publish(job)
    until(lambda: rig.now(job).status is Status.MERGING)
    deps = rig.deps()
    until(lambda: deps.broker.in_flight(["download.default"])["download.default"] == 0)


def test_unreadable_and_unknown_messages_become_letters_and_the_worker_goes_on(rig):
    job, _ = rig.job_at()
    client = rig.deps().broker.client
    client.hset("dramatiq:download.default.msgs", "m1", b"\xff\xfe not json")
    client.rpush("dramatiq:download.default", "m1")
    rig.deps().broker.publish("m2", "nobody", "download.default", {"job": "x", "epoch": 1})
    rig.deps().broker.publish("m3", "download", "download.default", {"job": "x", "epoch": 1})
    rig.worker(advance)
    rig.publish(job)
    until(lambda: rig.now(job).status is Status.MERGING)
    until(lambda: len(rig.letters()) == 3)
    assert sorted(letter.reason.split(":")[0] for letter in rig.letters()) == [
        "no such actor",
        "unknown job",
        "unreadable message",
    ]


def test_a_clock_ten_minutes_ahead_runs_nothing_twice(new_rig, engine, redis_url):
    rig = new_rig(engine, redis_url, SLUICE_HOST_CONCURRENCY="0")
    began, end = [], Event()

    def handle(run):
        began.append(run.deps.worker_id)
        assert end.wait(60)
        return advance(run)

    one = rig.worker(handle)
    two = rig.worker(handle)
    object.__setattr__(two, "clock", lambda: time.time() + 600)
    jobs_ = [rig.job_at()[0] for _ in range(8)]
    for job in jobs_:
        rig.publish(job)
    until(lambda: len(began) == 8)
    assert set(began) == {one.worker_id, two.worker_id}
    end.set()
    until(lambda: all(rig.now(job).status is Status.MERGING for job in jobs_))
    assert len(began) == 8
    assert [len(rig.attempts(job)) for job in jobs_] == [len(rig.attempts(jobs_[0]))] * 8
