"""A job that brings its worker down is put aside, and nobody beside it suffers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import jobs, runs
from sluice_core.adapters.db.dead_letters import Filter, list_page
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.redis import connect_broker
from sluice_core.domain.beats import BeatWatch
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.publisher import publish_now
from sluice_scheduler import reconcile
from sluice_testing.factories import run_at
from sluice_testing.process import is_alive
from sluice_testing.waiting import PATIENCE, until

pytestmark = pytest.mark.timeout(900)

PROGRAM = Path(__file__).with_name("quarantine_worker.py")


class Pool:
    """One worker process that is started again when it dies, and a scheduler by hand."""

    def __init__(self, folder: Path, engine: sa.Engine, database_url: str, redis_url: str) -> None:
        self.folder = folder
        self.engine = engine
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")},
            "SLUICE_DATA_DIR": str(folder),
            "SLUICE_DATABASE_URL": database_url,
            "SLUICE_REDIS_URL": redis_url,
            "SLUICE_DRAIN_GRACE": "0.5",
        }
        self.broker = SluiceBroker(connect_broker(redis_url))
        # A beat comes twice a second.
        self.watch = BeatWatch(patience=6.0, max_step=3.0)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        folder.mkdir()

    def submit(self, what: str) -> Job:
        with write(self.engine) as c:
            run = run_at(c, Actor.DOWNLOAD, now=time.time(), url=f"https://media.example/{what}")
            job, order = runs.hand_back(c, run, now=time.time())
        publish_now(self.broker, [order], now=time.time())
        return job

    def turn(self) -> None:
        """What supervisor and scheduler do."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([sys.executable, str(PROGRAM)], env=self.env)
            self.starts += 1
        self.broker.requeue_dead()
        rows = reconcile.lost_workers(
            self.engine, self.watch, monotonic=time.monotonic(), now=time.time(), keep_partial=60
        )
        publish_now(self.broker, rows, now=time.time())

    def until(self, condition: Any) -> None:
        # Some starts of processes, one after the other.
        until(lambda: condition() or self.turn(), timeout=5 * PATIENCE)

    def job(self, job: Job) -> Job:
        with read(self.engine) as c:
            found = jobs.get(c, job.id)
        assert found is not None
        return found

    def outcomes(self, job: Job) -> list[str | None]:
        with read(self.engine) as c:
            return [a.outcome for a in jobs.attempts_of(c, job.id) if a.stage == "download"][1:]

    def began(self, what: str) -> list[int]:
        """Process ids of the runs so far."""
        file = self.folder / "began"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == what]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self.broker.client.close()


@pytest.fixture
def pool(tmp_path: Path, engine: sa.Engine, database_url: str, redis_url: str) -> Iterator[Pool]:
    with ExitStack() as stack:
        pool = Pool(tmp_path / "data", engine, database_url, redis_url)
        stack.callback(pool.close)
        yield pool


def test_poison_is_put_aside_and_its_neighbour_keeps_its_tries(pool: Pool) -> None:
    good = pool.submit("slow")
    bad = pool.submit("poison")
    pool.until(lambda: pool.job(bad).status is Status.FAILED)
    error = pool.job(bad).error
    assert error is not None
    assert (error.code, error.error_class) == ("worker_lost", "manual")
    assert pool.outcomes(bad) == ["lost", "lost", "lost"]
    with read(pool.engine) as c:
        (letter,) = list_page(c, Filter(), before_id=None, limit=9)
    assert letter.job_id == bad.id
    assert letter.reason.startswith("worker_lost")
    # The third run died in a process of its own; that of the worker which started it lives.
    assert len(set(pool.began("poison"))) == 3
    assert pool.process is not None
    assert pool.process.poll() is None
    assert pool.starts == 3
    pool.until(lambda: len(pool.began("slow")) == 3)
    (pool.folder / "end").touch()
    pool.until(lambda: pool.job(good).status is Status.MERGING)
    assert pool.outcomes(good) == ["lost", "lost", "ok"]
    with read(pool.engine) as c:
        assert len(list_page(c, Filter(), before_id=None, limit=9)) == 1


def test_losses_with_progress_blame_nobody(pool: Pool) -> None:
    job = pool.submit("grows")
    pool.until(lambda: len(pool.began("grows")) == 3)
    assert pool.job(job).losses == 0
    assert pool.job(job).status is Status.DOWNLOADING


def test_a_lone_process_hands_back_at_a_drain_and_dies_with_its_worker(pool: Pool) -> None:
    job = pool.submit("slow")
    with write(pool.engine) as c:
        c.exec_driver_sql("UPDATE jobs SET losses = 2")
    pool.until(lambda: pool.began("slow"))
    assert pool.process is not None
    (lone,) = pool.began("slow")
    assert lone != pool.process.pid
    pool.process.send_signal(signal.SIGTERM)
    assert pool.process.wait(60) == 0
    assert pool.outcomes(job) == ["handed_back"]
    until(lambda: not is_alive(lone))
    pool.until(lambda: len(pool.began("slow")) == 2)
    lone = pool.began("slow")[1]
    pool.process.kill()
    pool.process.wait(60)
    until(lambda: not is_alive(lone))
    # Nobody saw whose doing it was: the job goes on.
    pool.until(lambda: len(pool.began("slow")) == 3)
    assert pool.job(job).losses == 3
    (pool.folder / "end").touch()
    pool.until(lambda: pool.job(job).status is Status.MERGING)
