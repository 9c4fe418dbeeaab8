"""A worker process from its start to its end: signals, drain, retirement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice_core.domain.metrics import METRICS, Source
from sluice_core.domain.states import Status, WaitingFor
from sluice_testing.process import free_port, is_alive
from sluice_testing.prometheus import answers, complaints
from sluice_testing.waiting import PATIENCE, until

PROGRAM = Path(__file__).with_name("process_worker.py")
#: Each start of a worker takes seconds, and one database is enough where none is under test.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Process:
    """One worker, and what it says."""

    def __init__(self, stack, rig, database_url, redis_url, **env):
        self.folder = rig.loaded.store.data_dir
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")},
                "SLUICE_DATA_DIR": str(self.folder),
                "SLUICE_DATABASE_URL": database_url,
                "SLUICE_REDIS_URL": redis_url,
                "SLUICE_HOST_CONCURRENCY": "0",
                **env,
            },
            start_new_session=True,
        )
        stack.callback(self.process.wait, PATIENCE)
        stack.callback(self.process.kill)

    def said(self, word):
        file = self.folder / "said"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == word]

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self, timeout=2 * PATIENCE):
        return self.process.wait(timeout)


@pytest.fixture
def start(rig, database_url, redis_url):
    with ExitStack() as stack:
        yield lambda **env: Process(stack, rig, database_url, redis_url, **env)


def order(rig, what):
    job, _ = rig.job_at(url=f"https://media.example/{what}")
    rig.publish(job)
    return job


def test_sigterm_lets_a_run_finish_and_returns_what_waits(rig, start):
    worker = start(SLUICE_DOWNLOAD_CONCURRENCY="1", SLUICE_DRAIN_GRACE=str(2 * PATIENCE))
    job = order(rig, "child-2")
    until(lambda: worker.said("child"))
    waiting = order(rig, "child-2")
    began = time.monotonic()
    worker.signal()
    assert worker.end() == 0
    # When its run had ended, long before the grace had.
    assert time.monotonic() - began < PATIENCE
    assert worker.said("ended") == [["exited", "0"]]
    assert rig.now(job).status is Status.MERGING
    assert rig.now(waiting).waiting_for is WaitingFor.WORKER
    assert rig.deps().broker.waiting(["download.default"])["download.default"] == 1


def test_after_the_grace_a_run_hands_back(rig, start):
    worker = start(SLUICE_DRAIN_GRACE="1")
    job = order(rig, "child-600")
    until(lambda: worker.said("child"))
    tries = rig.now(job).tries
    began = time.monotonic()
    worker.signal()
    assert worker.end() == 0
    assert time.monotonic() - began >= 1
    assert worker.said("ended")[0][0] == "drained"
    now = rig.now(job)
    assert (now.waiting_for, now.tries) == (WaitingFor.WORKER, tries - 1)
    assert rig.attempts(job)[-1].outcome == "handed_back"
    assert rig.deps().broker.waiting(["download.default"])["download.default"] == 1


@on_sqlite
def test_a_second_signal_hurries(rig, start):
    worker = start(SLUICE_DRAIN_GRACE="600")
    job = order(rig, "child-600")
    until(lambda: worker.said("child"))
    # Two that arrive at the same moment are one to the system, so it is told until it hears.
    until(lambda: worker.said("ended") or worker.signal(), every=0.5)
    assert worker.end() == 0
    assert rig.attempts(job)[-1].outcome == "handed_back"


@on_sqlite
def test_a_signal_to_the_whole_group_leaves_children_to_the_worker(rig, start):
    worker = start(SLUICE_DRAIN_GRACE=str(2 * PATIENCE))
    job = order(rig, "child-2")
    until(lambda: worker.said("child"))
    os.killpg(worker.process.pid, signal.SIGTERM)
    assert worker.end() == 0
    assert worker.said("ended") == [["exited", "0"]]
    assert rig.now(job).status is Status.MERGING


@on_sqlite
def test_a_run_that_hears_nothing_holds_up_no_end_and_leaves_no_child(rig, start):
    worker = start(SLUICE_DRAIN_GRACE="0")
    job = order(rig, "deaf-600")
    until(lambda: worker.said("begin"))
    worker.signal()
    assert worker.end() == 0
    # Its message and its attempt are still there: the scheduler finds both.
    assert rig.attempts(job)[-1].ended_at is None
    assert rig.deps().broker.in_flight(["download.default"])["download.default"] == 1


@on_sqlite
def test_a_killed_worker_leaves_no_child(rig, start):
    worker = start()
    order(rig, "child-600")
    ((pid,),) = until(lambda: worker.said("child"))
    worker.signal(signal.SIGKILL)
    worker.end()
    until(lambda: not is_alive(int(pid)))


@on_sqlite
def test_a_worker_retires_after_so_many_messages(rig, start):
    worker = start(SLUICE_MAX_TASKS="2", SLUICE_DOWNLOAD_CONCURRENCY="1")
    jobs = [order(rig, "quick") for _ in range(4)]
    assert worker.end() == 0
    done = [job for job in jobs if rig.now(job).status is Status.MERGING]
    assert 2 <= len(done) <= 3  # one may have begun as it was told
    left = rig.deps().broker.waiting(["download.default"])["download.default"]
    assert left == 4 - len(done)
    assert all(rig.attempts(job)[-1].ended_at is not None for job in done)


@on_sqlite
def test_a_worker_retires_above_its_memory(rig, start):
    worker = start(SLUICE_MAX_MEMORY_MIB="250", SLUICE_DOWNLOAD_CONCURRENCY="1")
    small = order(rig, "quick")
    until(lambda: rig.now(small).status is Status.MERGING)
    assert worker.process.poll() is None
    order(rig, "big-300")
    assert worker.end() == 0


@on_sqlite
class TestMetricsPort:
    @pytest.fixture
    def port(self):
        return free_port()

    @pytest.fixture
    def worker(self, start, port):
        process = start(
            SLUICE_METRICS_PORT=str(port),
            SLUICE_DOWNLOAD_CONCURRENCY="2",
            SLUICE_SCRATCH_SIZE="10000000",
        )
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"))
        return process

    def value(self, port, name, **labels):
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def test_its_page(self, rig, worker, port):
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        assert complaints(page) == ""
        known = {m.full_name for m in METRICS.values() if m.source is Source.PROCESS}
        for family in text_string_to_metric_families(page):
            name = family.name + ("_total" if family.type == "counter" else "")
            assert name in known or name.startswith("process_")
        slots = {"name": "sluice_worker_slots", "stage": "download"}
        assert self.value(port, **slots, state="idle") == 2
        order(rig, "child-600")
        until(lambda: worker.said("child"))
        assert self.value(port, **slots, state="busy") == 1
        assert self.value(port, **slots, state="idle") == 1
        order(rig, "nothing-0")
        done = {"queue": "download.default", "outcome": "ok"}
        until(lambda: self.value(port, "sluice_worker_messages_total", **done) == 1)
        # Of what its folder may hold, whatever its disk has besides.
        assert 0 < self.value(port, "sluice_scratch_free_bytes") <= 10_000_000
        # One that works is alive.
        assert answers(f"http://127.0.0.1:{port}/livez")

    def test_a_redis_that_is_silent_makes_it_neither_unlive_nor_unready(
        self, rig, worker, port, redis_server
    ):
        # It has beaten by then, so that it is its own silence that counts.
        order(rig, "nothing-0")
        until(lambda: self.value(port, "sluice_worker_messages_total") == 1)
        redis_server.pause()
        try:
            until(lambda: self.value(port, "sluice_worker_beat_age_seconds") > 8)
            assert answers(f"http://127.0.0.1:{port}/livez")
            assert answers(f"http://127.0.0.1:{port}/readyz")
        finally:
            redis_server.cont()
        until(lambda: self.value(port, "sluice_worker_beat_age_seconds") < 4)
        assert worker.process.poll() is None
