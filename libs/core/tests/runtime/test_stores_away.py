# ruff: noqa: ARG001  # handlers have a fixed signature
"""With a store away a run waits; nothing is lost, doubled, or acknowledged before it is written."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import contextmanager, suppress
from threading import Event

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.runtime.run import Advance, Finished
from sluice_testing.postgres import PostgresServer
from sluice_testing.waiting import until

Q = "download.default"


def advance(run):
    return Advance(Actor.TRANSCODE, {"sources": [{"key": "k"}]})


@pytest.fixture
def own_engine(own_postgres: PostgresServer):
    engine = open_engine(own_postgres.url(own_postgres.new_database(migrated=True)))
    yield engine
    engine.dispose()


@contextmanager
def locked(path):
    """SQLite with a writer that does not end."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        yield
        connection.exec_driver_sql("ROLLBACK")
    engine.dispose()


def test_a_database_that_restarts_during_claim_and_end_costs_nothing(
    own_postgres, own_engine, new_rig, redis_url
):
    rig = new_rig(own_engine, redis_url)
    first, _ = rig.job_at()
    second, _ = rig.job_at()
    began, end = Event(), Event()

    def handle(run):
        began.set()
        assert end.wait(60)
        run.progress(Progress(percent=50.0))
        return advance(run)

    deps = rig.worker(handle)
    rig.publish(first)
    assert began.wait(60)
    rig.deps().broker.publish_many([])
    order = rig.order(second)
    own_postgres.stop()
    # Published before the worker noticed: it meets the database as it claims.
    deps.broker.publish(order.id, "download", Q, {"job": second.id, "epoch": order.epoch})
    end.set()
    time.sleep(1.5)
    # Asked at one moment: what is put back goes from one to the other.
    there = deps.broker.stats([Q])[Q]
    assert there.in_flight + there.waiting == 2
    own_postgres.start()
    until(lambda: all(rig.now(job).status is Status.MERGING for job in (first, second)))
    until(lambda: deps.broker.in_flight([Q])[Q] == 0)
    for job in (first, second):
        assert [a.outcome for a in rig.attempts(job) if a.stage == "download"][-1] == "ok"
        assert rig.now(job).losses == 0


def test_a_drain_without_a_database_acknowledges_nothing(
    tmp_path, sqlite_template, new_rig, redis_url
):
    path = tmp_path / "own.db"
    path.write_bytes(sqlite_template.read_bytes())
    engine = open_engine(f"sqlite:///{path}", patience=0.1)
    rig = new_rig(engine, redis_url)
    job, message = rig.job_at()
    with locked(path):
        threading.Timer(0.5, rig.deps().drain.set).start()
        with pytest.raises(StoreAwayError):
            rig.run(advance, message)
    assert rig.now(job).waiting_for is WaitingFor.WORKER
    rig.deps().drain.clear()
    rig.run(advance, message)
    assert rig.now(job).status is Status.MERGING


def test_progress_does_not_wait_for_the_database(tmp_path, sqlite_template, new_rig, redis_url):
    path = tmp_path / "own.db"
    path.write_bytes(sqlite_template.read_bytes())
    rig = new_rig(open_engine(f"sqlite:///{path}", patience=0.1), redis_url)
    job, message = rig.job_at()

    def handle(run):
        with locked(path):
            began = time.monotonic()
            run.progress(Progress(percent=50.0))
            run.on_child(1, 1)
            # Once for each; whoever asks again does so for as long as the lock is held.
            assert time.monotonic() - began < 10
        return advance(run)

    rig.run(handle, message)
    assert rig.now(job).status is Status.MERGING


class Cutter:
    """Stands between a client and PostgreSQL; loses the server's answer to a commit when told."""

    def __init__(self, folder, target):
        self.url_folder = folder
        self.cuts = 0
        self.cut_done = 0
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(20)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client):
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._target)
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is server:
                        client.sendall(data)
                        continue
                    server.sendall(data)
                    if b"COMMIT" in data and self.cuts:
                        self.cuts -= 1
                        server.recv(65536)  # it is committed
                        self.cut_done += 1
                        return


@pytest.fixture
def cutter(tmp_path_factory, postgres_server: PostgresServer):
    name = postgres_server.new_database(migrated=True)
    url = sa.make_url(postgres_server.url(name))
    folder = tmp_path_factory.mktemp("pg")
    cutter = Cutter(folder, os.path.join(url.query["host"], ".s.PGSQL.5432"))  # noqa: PTH118  # an address
    cutter.url = url.set(query={"host": str(folder)}).render_as_string(hide_password=False)
    yield cutter
    cutter.close()
    postgres_server.drop(name)


@pytest.fixture
def cut_rig(cutter, new_rig, redis_url):
    engine = open_engine(cutter.url)
    rig = new_rig(engine, redis_url)
    rig.watch = False  # its beats are commits too
    yield rig
    engine.dispose()


def test_a_claim_whose_answer_got_lost_is_this_runs_own(cutter, cut_rig):
    job, message = cut_rig.job_at()
    deps = cut_rig.deps()
    began = []
    cutter.cuts = 1
    cut_rig.run(lambda run: began.append(run.id.epoch) or advance(run), message)
    assert cutter.cut_done == 1
    assert began == [message.epoch + 1]
    assert cut_rig.now(job).status is Status.MERGING
    assert deps.running.jobs() == []


@pytest.mark.parametrize("ending", ["finished", "retry", "hand_back"])
def test_an_end_whose_answer_got_lost_is_stored_once_and_keeps_its_files(
    cutter, cut_rig, put, ending
):
    stage = Actor.TRANSCODE if ending == "finished" else Actor.DOWNLOAD
    job, message = cut_rig.job_at(stage)

    def handle(run):
        file = put(run, final=True)
        cutter.cuts = 1
        if ending == "finished":
            return Finished([file])
        if ending == "retry":
            raise ZeroDivisionError
        run.deps.drain.set()
        return run.check()

    cut_rig.run(handle, message, stage)
    assert cutter.cut_done == 1
    now = cut_rig.now(job)
    assert [a.outcome for a in cut_rig.attempts(job)][-1] == {
        "finished": "ok",
        "retry": "retry",
        "hand_back": "handed_back",
    }[ending]
    if ending == "finished":
        assert now.status is Status.SUCCESS
        assert len(cut_rig.keys(job)) == 1
    else:
        assert cut_rig.order(job).epoch == now.epoch == message.epoch + 1
        assert (cut_rig.loaded.store.scratch_dir / f"{job.id}.download.{now.epoch}").exists()


def test_with_redis_away_a_run_ends_and_its_order_waits_in_the_database(own_redis, engine, new_rig):
    rig = new_rig(engine, own_redis.url)
    job, message = rig.job_at()
    rig.deps()
    own_redis.kill9()
    rig.run(advance, message)
    assert rig.now(job).status is Status.MERGING
    assert rig.order(job).published_at is None
