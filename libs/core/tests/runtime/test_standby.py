"""A worker whose pod is marked: by a real process' parts, on real Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sluice_core.domain import keys
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.runtime.run import Advance, Run
from sluice_testing.waiting import PATIENCE, until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

POD = "pod-1"
PROGRAM = Path(__file__).with_name("process_worker.py")


class Pod:
    """A worker with a handler that ends when it is told."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.go = Event()
        self.begun = Event()
        self.deps = rig.worker(self.handle)
        self.signals = self.deps.signals

    def handle(self, run: Run) -> Advance:
        del run
        self.begun.set()
        assert self.go.wait(2 * PATIENCE)
        return Advance(Actor.TRANSCODE, {"sources": []})

    def submit(self) -> Any:
        job, _ = self.rig.job_at()
        self.rig.publish(job)
        return job

    def mark(self, value: str) -> None:
        self.signals.set(keys.standby(POD), value, ex=60)

    def answer(self) -> str | None:
        found: str | None = self.signals.get(keys.standby_answer(POD))
        return found

    def waits(self) -> int:
        return int(self.deps.broker.waiting(["download.default"])["download.default"])


@pytest.fixture
def pod(new_rig: Callable[..., Any], engine: Any, redis_url: str) -> Pod:
    return Pod(new_rig(engine, redis_url, SLUICE_POD_NAME=POD))


def test_marked_it_takes_nothing_answers_once_it_is_empty_and_goes_on_when_told(pod: Pod) -> None:
    pod.submit()
    assert pod.begun.wait(60)
    pod.mark("m1")
    until(pod.deps.standby.reason, why="the mark is seen")
    time.sleep(1.5)  # longer than the answer of an idle worker takes
    assert pod.answer() is None, "it runs something"
    pod.go.set()
    until(lambda: pod.answer() == "m1")
    job = pod.submit()
    # Its consumer was woken by this message, and left it where it was.
    time.sleep(0.5)
    assert (pod.waits(), pod.answer()) == (1, "m1")
    pod.mark("-")
    until(lambda: pod.rig.now(job).stage is Actor.TRANSCODE)


def test_an_emptied_redis_does_not_wake_it(pod: Pod) -> None:
    pod.mark("m1")
    until(lambda: pod.answer() == "m1")
    assert 0 < int(pod.signals.ttl(keys.standby_answer(POD))) <= 10
    pod.signals.flushall()
    pod.submit()
    # It answers again, by what it remembers.
    until(lambda: pod.answer() == "m1")
    assert pod.waits() == 1


def test_marked_before_its_start_it_begins_nothing(
    new_rig: Callable[..., Any],
    engine: Any,
    database_url: str,
    redis_url: str,
) -> None:
    rig = new_rig(engine, redis_url)
    signals = rig.deps().signals
    signals.set(keys.standby(POD), "m1", ex=60)
    job, _ = rig.job_at(url="https://media.example/quick-0")
    rig.publish(job)
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "SLUICE_DATA_DIR": str(rig.loaded.store.data_dir),
        "SLUICE_DATABASE_URL": database_url,
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_POD_NAME": POD,
    }
    process = subprocess.Popen([sys.executable, str(PROGRAM)], env=env)
    try:
        until(lambda: signals.get(keys.standby_answer(POD)) == "m1")
        assert rig.now(job).stage is Actor.DOWNLOAD
        signals.set(keys.standby(POD), "-", ex=60)
        until(lambda: rig.now(job).stage is Actor.TRANSCODE)
    finally:
        process.kill()
        process.wait(60)


def test_a_worker_may_take_from_some_lanes_only(
    new_rig: Callable[..., Any], engine: Any, redis_url: str
) -> None:
    rig = new_rig(engine, redis_url, SLUICE_DOWNLOAD_LANES="bulk, high")
    jobs = {lane: rig.job_at(lane=Lane(lane))[0] for lane in ("high", "default", "bulk")}
    for job in jobs.values():
        rig.publish(job)
    rig.worker(lambda _run: Advance(Actor.TRANSCODE, {"sources": []}))
    for lane in ("high", "bulk"):
        until(lambda lane=lane: rig.now(jobs[lane]).stage is Actor.TRANSCODE)
    time.sleep(0.3)
    assert rig.now(jobs["default"]).stage is Actor.DOWNLOAD
