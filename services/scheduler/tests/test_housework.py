"""The built-in tasks do what they say, and nothing to what is in use just then."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from threading import Event

import pytest
import sqlalchemy as sa

from sluice_core.adapters import settings
from sluice_core.adapters.db import callbacks, details, jobs, moves, outbox, runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import callbacks as callbacks_table
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.storage import open_storage
from sluice_core.domain import keys
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.schedule import BUILTINS
from sluice_core.domain.states import Status
from sluice_core.runtime.deps import make_deps
from sluice_scheduler import housework
from sluice_testing.factories import NOW, fail, make_job_in, run_at, start_run
from sluice_testing.waiting import PATIENCE

DAY = 86_400.0


@pytest.fixture
def clock():
    return [NOW]


@pytest.fixture
def deps(tmp_path, engine, redis_url, clock):
    loaded = settings.load({"SLUICE_DATA_DIR": str(tmp_path), "SLUICE_REDIS_URL": redis_url})
    storage = open_storage(loaded.store.effective_storage_url)
    storage.check()
    with ExitStack() as stack:
        made = make_deps(Actor.SETTLE, loaded, stack, engine=engine, storage=storage)
        yield replace(made, clock=lambda: clock[0])


def status(engine, job_id):
    with read(engine) as c:
        return jobs.get(c, job_id).status


def run(task, deps):
    return task(deps, Event())


def test_every_built_in_schedule_has_a_task(deps):
    assert set(housework.tasks(deps)) == {builtin.name for builtin in BUILTINS}


def test_files_whose_time_is_over_go(engine, deps, clock):
    with write(engine) as c:
        job = make_job_in(c, Status.SUCCESS)
    assert run(housework.delete_expired, deps) == "files of 0 jobs expired"
    clock[0] = NOW + DAY + 1
    assert run(housework.delete_expired, deps) == "files of 1 jobs expired"
    with read(engine) as c:
        assert details.files_of(c, [job.id]) == {}


def beside(engine, write_first, task):
    """Run the task while another transaction has written and not yet committed."""
    written, go_on = Event(), Event()

    def other():
        with write(engine) as c:
            write_first(c)
            written.set()
            go_on.wait(2 * PATIENCE)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert written.wait(60)
        # SQLite has one writer at a time: there the task waits for the commit.
        threading.Timer(0.5, go_on.set).start()
        return task()
    finally:
        go_on.set()
        thread.join()


def test_files_that_are_asked_for_again_just_now_stay(engine, deps, clock):
    with write(engine) as c:
        job = make_job_in(c, Status.SUCCESS)
    clock[0] = NOW + DAY + 1
    beside(
        engine,
        lambda c: jobs.extend_expiry(c, job.id, NOW + 9 * DAY),
        lambda: run(housework.delete_expired, deps),
    )
    with read(engine) as c:
        assert len(details.files_of(c, [job.id])[job.id]) == 1


def test_a_job_that_is_retried_just_now_is_not_purged(engine, deps, clock):
    with write(engine) as c:
        job = make_job_in(c, Status.FAILED)
    clock[0] = NOW + 365 * DAY
    beside(
        engine,
        lambda c: moves.retry(c, job.id, now=clock[0]),
        lambda: run(housework.purge_rows, deps),
    )
    with read(engine) as c:
        row = c.execute(sa.select(jobs_table.c.deleted_at)).scalar_one()
    assert row is None
    assert status(engine, job.id) is Status.MERGING


def failing(engine, code, error_class, *, failures=1, **fields):
    error = JobError(code, error_class, "words")
    with write(engine) as c:
        claim = run_at(c, Actor.DOWNLOAD, **fields)
        for n in range(failures):
            if n:
                moves.retry(c, claim.job.id, now=NOW)
                claim = start_run(c, claim.job.id)
            runs.fail(c, claim, error, dead=True, sweep_at=NOW + 2 * DAY, now=NOW)
    return claim.job.id


@pytest.mark.parametrize(
    "case",
    [
        ("transient", 1, housework.REST + 1, True),
        ("transient", 2, housework.REST + 1, True),
        ("transient", 3, housework.REST + 1, False),
        ("transient", 1, housework.REST - 1, False),
        ("transient", 1, housework.TOO_LATE + 1, False),
        ("permanent", 1, housework.REST + 1, False),
        ("manual", 1, housework.REST + 1, False),
    ],
)
def test_who_gets_another_chance(engine, deps, clock, case):
    error_class, failures, after, again = case
    job_id = failing(engine, "network", error_class, failures=failures)
    clock[0] = NOW + after
    assert run(housework.retry_transient, deps) == f"{int(again)} jobs tried again"
    assert status(engine, job_id) is (Status.DOWNLOADING if again else Status.FAILED)
    with read(engine) as c:
        ordered = [r.actor for r in outbox.of_job(c, job_id)]
    assert ordered == (["download"] if again else [])


def test_a_canceled_or_deleted_job_gets_no_chance(engine, deps, clock):
    deleted = failing(engine, "network", "transient")
    with write(engine) as c:
        moves.delete(c, deleted, now=NOW)
        canceled = make_job_in(c, Status.CANCELED)
    clock[0] = NOW + housework.REST + 1
    assert run(housework.retry_transient, deps) == "0 jobs tried again"
    assert status(engine, canceled.id) is Status.CANCELED


def test_rows_of_long_ago_go(engine, deps, clock):
    with write(engine) as c:
        claim = run_at(c, Actor.DOWNLOAD, callback_url="https://hooks.example/")
        job = fail(c, claim)
        callback = callbacks.find(c, job.id, job.epoch)
        callbacks.sent(c, callback, now=NOW)
        active = make_job_in(c, Status.DOWNLOADING)
    clock[0] = NOW + deps.settings.jobs.retention_jobs + 1
    assert run(housework.purge_rows, deps) == "1 jobs and 1 other rows of long ago"
    with read(engine) as c:
        assert jobs.get(c, job.id) is None
        assert jobs.get(c, active.id) is not None
        assert c.execute(sa.select(callbacks_table)).all() == []


def test_a_callback_on_its_way_is_not_forgotten(engine, deps, clock):
    with write(engine) as c:
        job = fail(c, run_at(c, Actor.DOWNLOAD, callback_url="https://hooks.example/"))
    clock[0] = NOW + 1000 * DAY
    run(housework.purge_rows, deps)
    with read(engine) as c:
        assert callbacks.find(c, job.id, job.epoch) is not None


def test_letters_and_events_are_cut(deps, monkeypatch):
    monkeypatch.setattr(keys, "EVENTS_MAXLEN", 100)
    for n in range(1000):
        deps.signals.xadd(keys.EVENTS, {"n": n})
    assert housework.trim(deps).startswith("0 dead letters")
    assert deps.signals.xlen(keys.EVENTS) <= 200


def test_a_told_stop_ends_between_two_steps(engine, deps, clock):
    failing(engine, "network", "transient")
    clock[0] = NOW + housework.REST + 1
    stop = Event()
    stop.set()
    assert housework.retry_transient(deps, stop) == "0 jobs tried again"
