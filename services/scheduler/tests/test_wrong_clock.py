"""A scheduler whose machine's clock is wrong starts, expires and retries what is due, no other."""

from __future__ import annotations

import json
import time

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import details, firings, outbox, schedules
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.adapters.db.schedules import NewSchedule
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.adapters.db.schema import schedules as schedules_table
from sluice_core.domain.job import Request
from sluice_core.domain.lanes import Actor
from sluice_core.domain.schedule import DELETE_EXPIRED, Kind, Missed, Trigger
from sluice_testing.factories import finish, make_job, run_at
from sluice_testing.waiting import until
from sluice_testing.wrong_clock import wrong_clock

#: Seconds until what is due only after the test, and less than what the clocks are wrong by.
LATER = 300.0
#: Seconds that a look at the database's clock may be wrong by on a busy machine.
SLOW = 30.0


@pytest.fixture
def database_url(postgres_server):
    """Of machines that share one: that is PostgreSQL."""
    name = postgres_server.new_database(migrated=True)
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def engine(database_url):
    opened = open_engine(database_url)
    yield opened
    opened.dispose()


def every_day(connection, name, next_at, now):
    new = NewSchedule(
        name=name,
        kind=Kind.SUBMIT,
        trigger=Trigger(every=86_400.0, anchor=next_at),
        next_at=next_at,
        request=Request(url=f"https://media.example/{name}", preset="720p"),
        missed=Missed.ONCE,
    )
    return schedules.add(connection, new, now=now)


def file_until(connection, expires_at, now):
    """A job that ended well, and keeps its file until then."""
    run = run_at(connection, Actor.TRANSCODE)
    finish(connection, run, now=now)
    connection.execute(
        sa.update(jobs_table).where(jobs_table.c.id == run.job.id).values(expires_at=expires_at)
    )
    return run.job.id


def published(engine, job):
    with read(engine) as c:
        return any(row.published_at is not None for row in outbox.of_job(c, job.id))


def fired(engine, schedule):
    with read(engine) as c:
        return firings.list_of(c, schedule.id, limit=10)


def files(engine, job_id):
    with read(engine) as c:
        return details.files_of(c, [job_id])


def run_built_in(engine, name, now):
    """Make it due; returns its schedule once the scheduler has planted it."""

    def planted():
        with write(engine) as c:
            return c.execute(
                sa.update(schedules_table)
                .where(schedules_table.c.name == name)
                .values(next_at=now)
                .returning(schedules_table.c.id)
            ).scalar()

    return until(planted, timeout=60, why="the scheduler leads nobody")


@pytest.mark.parametrize("ahead", [600.0, -600.0, 3600.0])
def test_what_is_due_begins_and_what_is_not_waits(engine, start_scheduler, tmp_path, ahead):
    now = time.time()
    with write(engine) as c:
        job_due = make_job(c, not_before=now + 1, now=now)
        job_later = make_job(c, not_before=now + LATER, now=now)
        plan_due = every_day(c, "due", now + 1, now)
        plan_later = every_day(c, "later", now + LATER, now)
        file_due = file_until(c, now - 1, now)
        file_later = file_until(c, now + LATER, now)
    start_scheduler(**wrong_clock(tmp_path, ahead))
    run_built_in(engine, DELETE_EXPIRED, now)
    until(lambda: published(engine, job_due), timeout=60, why="what is due waits")
    until(lambda: fired(engine, plan_due), timeout=60, why="a schedule that is due waits")
    until(lambda: not files(engine, file_due), timeout=60, why="a file outlives its time")
    with write(engine) as c:
        plan_after = every_day(c, "after", time.time(), time.time())
    until(lambda: fired(engine, plan_after), timeout=60, why="a schedule that is due waits")
    # All that is due goes in one turn: had these been thought due, they would be gone by now.
    assert not published(engine, job_later)
    assert fired(engine, plan_later) == []
    assert files(engine, file_later)
    with read(engine) as c:
        marks = c.execute(
            sa.select(outbox_table.c.published_at).where(outbox_table.c.published_at.is_not(None))
        ).scalars()
        # What it writes for others is right as well.
        assert all(now - SLOW < mark < time.time() + SLOW for mark in marks)
    [firing] = fired(engine, plan_due)
    assert now - SLOW < firing.fired_at < time.time() + SLOW


def test_it_says_that_its_clock_is_wrong(start_scheduler, tmp_path):
    start_scheduler(**wrong_clock(tmp_path, -600.0))
    lines = map(json.loads, (tmp_path / "scheduler.log").read_text("utf-8").splitlines())
    [told] = [line for line in lines if line["event"] == "clock_is_wrong"]
    assert told["ahead_seconds"] == pytest.approx(-600.0, abs=SLOW)
    assert told["level"] == "warning"
