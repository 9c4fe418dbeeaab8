"""Whatever becomes of a slot that helps, the job is as it was."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from sluice_core.adapters.db import moves, outbox, segments, steering
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import ChildLostError, HandBackError, SluiceError
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.helping import is_slot_wanted, run_help
from sluice_core.runtime.publisher import publish_now
from sluice_testing.factories import message_of, start_run
from sluice_testing.waiting import fastest, until

MARK = "f" * 32


def ask_for_help(rig):
    """A job whose run asks for help, and the rows that do."""
    job, _ = rig.job_at(Actor.TRANSCODE)
    with write(rig.engine) as c:
        run = start_run(c, job.id)
        missing = dict.fromkeys(range(6), 100)
        rows = segments.offer(c, run, fingerprint=MARK, missing=missing, helpers=2, now=time.time())
    return rig.now(job), rows


@pytest.fixture
def asked(rig):
    return ask_for_help(rig)


def helps(rig, job):
    return [(a.outcome, a.error_code) for a in rig.attempts(job) if a.stage == "help"]


def orders(rig, job):
    with read(rig.engine) as c:
        return [row for row in outbox.of_job(c, job.id) if row.actor == "help"]


def test_a_message_is_good_once_and_leaves_no_dead_letter(rig, asked):
    job, (row, _) = asked
    deps, message, ran = rig.deps(Actor.TRANSCODE), message_of(row), []

    def help_(run):
        ran.append(run.job.id)
        assert rig.deps(Actor.TRANSCODE).running.jobs() == [job.id]
        # It keeps nobody else's lock.
        assert rig.deps(Actor.TRANSCODE).running.owned() == []
        return False

    foreign = replace(message, id=new_id())
    for late in (message, message, foreign, replace(foreign, job_id=new_id())):
        run_help(deps, help_, late)
    run_help(deps, help_, replace(message_of(asked[1][1]), epoch=job.epoch - 1))
    assert ran == [job.id]
    assert helps(rig, job) == [("ok", None)]
    assert rig.letters() == []
    assert rig.now(job) == job


@pytest.mark.parametrize(
    ("fault", "ended", "asks_again"),
    [
        (SluiceError(code="bad_media"), ("failed", "bad_media"), 0),
        (OSError(28, "no space"), ("failed", "disk_full"), 0),
        (RuntimeError("a fault of ours"), ("failed", "internal"), 0),
        (ChildLostError("killed"), ("child_lost", "worker_lost"), 0),
        (HandBackError("drained"), ("handed_back", None), 1),
    ],
)
def test_however_it_ends_the_job_is_as_it_was(rig, asked, fault, ended, asks_again):
    job, (row, _) = asked
    deps = rig.deps(Actor.TRANSCODE)

    def help_(run):
        with write(rig.engine) as c:
            taken = segments.take(c, job.id, run.claim.attempt_id, fingerprint=MARK)
        assert taken == 0
        (run.scratch / "segment.part").write_bytes(b"half")
        raise fault

    run_help(deps, help_, message_of(row))
    assert helps(rig, job) == [ended]
    # One more waits from the start.
    assert len(orders(rig, job)) == 1 + asks_again
    assert rig.now(job) == job
    assert rig.letters() == []
    assert list(rig.loaded.store.scratch_dir.iterdir()) == []
    with read(rig.engine) as c:
        assert segments.free(c, job.id) == 6


def test_a_cancel_reaches_it_within_two_seconds(rig):
    deps, reached = rig.deps(Actor.TRANSCODE), []

    def help_(run):
        with write(rig.engine) as c:
            moves.cancel(c, run.job.id, now=time.time())
        asked_at = time.monotonic()
        until(run.stop, every=0.02)
        reached.append(time.monotonic() - asked_at)
        run.check()
        raise AssertionError("it was told to stop")

    def seconds():
        job, (row, _) = ask_for_help(rig)
        run_help(deps, help_, message_of(row))
        assert helps(rig, job) == [("canceled", None)]
        assert orders(rig, job) == []
        return reached.pop()

    assert fastest(seconds, below=2) < 2


def test_a_slot_is_wanted_by_jobs_and_not_by_others_who_help(rig, asked):
    job, rows = asked
    deps = rig.deps(Actor.TRANSCODE)
    assert not is_slot_wanted(deps)
    publish_now(deps.broker, rows, now=time.time())
    assert deps.broker.waiting(["transcode.bulk"]) == {"transcode.bulk": 2}
    assert not is_slot_wanted(deps)
    other, _ = rig.job_at(Actor.TRANSCODE)
    # Ordered, and not handed out yet.
    assert not is_slot_wanted(deps)
    rig.publish(other)
    assert is_slot_wanted(deps)
    with write(rig.engine) as c:
        steering.pause(c, "transcode.default", by="test", now=time.time())
    deps.running.read_wishes()
    assert not is_slot_wanted(deps)
    assert rig.now(job) == job
