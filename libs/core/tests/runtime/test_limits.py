# ruff: noqa: ARG001, ARG005  # callbacks have a fixed signature
"""Soft limits end a run cleanly; hard ones end it whatever it does."""

from __future__ import annotations

import sys
from threading import Event

import pytest

from sluice_core.domain.lanes import Actor
from sluice_core.domain.limits import UNKNOWN_DURATION, TimeLimits, time_limits
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.runtime import running, stage
from sluice_core.runtime.children import EndReason, ExecSpec, child_environment, is_alive, run
from sluice_core.runtime.run import Advance
from sluice_testing.waiting import until


@pytest.mark.parametrize(
    ("soft", "hard", "per_second", "duration", "expected"),
    [
        (None, None, 0.0, None, TimeLimits(None, None)),
        (None, None, 60.0, 10.0, TimeLimits(None, None)),
        (240.0, 300.0, 0.0, 10.0, TimeLimits(240.0, 300.0)),
        (100.0, None, 0.0, None, TimeLimits(100.0, 160.0)),
        (None, 100.0, 0.0, None, TimeLimits(50.0, 100.0)),
        (None, 300.0, 0.0, None, TimeLimits(240.0, 300.0)),
        (100.0, None, 2.0, 30.0, TimeLimits(160.0, 220.0)),
        (100.0, None, 1.0, None, TimeLimits(100 + UNKNOWN_DURATION, 160 + UNKNOWN_DURATION)),
    ],
)
def test_limits_grow_with_the_media_and_stay_apart(soft, hard, per_second, duration, expected):
    assert time_limits(soft, hard, per_second=per_second, duration=duration) == expected


def test_a_download_has_no_limit_unless_it_is_set(rig):
    _, message = rig.job_at()
    seen = []
    rig.run(lambda run: seen.append(run.hard_left()) or Advance(Actor.TRANSCODE), message)
    assert seen == [None]


def test_a_transcode_may_take_as_long_as_its_media_asks(rig):
    _, message = rig.job_at(Actor.TRANSCODE)
    seen = []
    rig.run(lambda run: seen.append(run.hard_left()) or run.raise_for("stale"), message,
            Actor.TRANSCODE)  # fmt: skip
    assert seen[0] == pytest.approx(1860 + 60 * UNKNOWN_DURATION, abs=5)


def sleeper(rig, handler_run):
    spec = ExecSpec(
        argv=[sys.executable, "-c", "import time; time.sleep(600)"],
        scratch=handler_run.scratch,
        env=child_environment(home=handler_run.scratch, base={}),
    )
    result = run(
        spec,
        on_line=lambda line: None,
        stop=handler_run.stop,
        deadline_s=handler_run.hard_left(),
        on_start=handler_run.on_child,
    )
    handler_run.raise_for(result.reason)


def test_the_soft_limit_ends_the_child_and_the_job_is_tried_again(new_rig, engine, redis_url):
    rig = new_rig(engine, redis_url, SLUICE_DOWNLOAD_SOFT_TIME_LIMIT="0.5")
    job, message = rig.job_at()
    rig.run(lambda r: sleeper(rig, r), message)
    now = rig.now(job)
    # By the hard one it would have failed, by the child's own end it would have gone on.
    assert (now.error.code, now.waiting_for) == ("timeout", WaitingFor.RETRY)


def test_the_hard_limit_kills_the_child_of_a_run_that_does_not_look(new_rig, engine, redis_url):
    rig = new_rig(
        engine,
        redis_url,
        SLUICE_DOWNLOAD_SOFT_TIME_LIMIT="0.5",
        SLUICE_DOWNLOAD_HARD_TIME_LIMIT="1",
    )
    job, message = rig.job_at()
    child = []

    def handle(handler_run):
        spec = ExecSpec(
            argv=[sys.executable, "-c", "import time; time.sleep(600)"],
            scratch=handler_run.scratch,
            env=child_environment(home=handler_run.scratch, base={}),
        )

        def on_start(pid, started):
            child.append((pid, started))
            handler_run.on_child(pid, started)

        result = run(spec, on_line=lambda line: None, deadline_s=None, on_start=on_start)
        assert result.signal == 9
        raise RuntimeError("the child crashed")

    rig.run(handle, message)
    assert not is_alive(*child[0])
    now = rig.now(job)
    assert (now.status, now.error.code) == (Status.FAILED, "hard_time_limit")


def test_a_run_that_nothing_ends_is_recorded_all_the_same(new_rig, engine, redis_url, monkeypatch):
    monkeypatch.setattr(stage, "HARD_GRACE", 0.5)
    rig = new_rig(engine, redis_url, SLUICE_DOWNLOAD_HARD_TIME_LIMIT="0.5")
    job, _ = rig.job_at()
    end = Event()
    deps = rig.worker(lambda r: end.wait(60) and Advance(Actor.TRANSCODE))
    rig.publish(job)
    until(lambda: rig.now(job).status is Status.FAILED)
    assert rig.now(job).error.code == "hard_time_limit"
    assert not deps.running.is_stuck()
    monkeypatch.setattr(running, "STUCK_AFTER", 0.5)
    until(deps.running.is_stuck)  # the process has lost a thread, and says so
    end.set()
    until(lambda: not deps.running.jobs())
    assert rig.now(job).status is Status.FAILED
    assert [a.outcome for a in rig.attempts(job)][-1] == "failed"


def test_deadline_of_a_child_is_the_hard_limit(rig):
    job, message = rig.job_at()
    rig.run(lambda r: r.raise_for(EndReason.DEADLINE), message)
    assert rig.now(job).error.code == "hard_time_limit"
