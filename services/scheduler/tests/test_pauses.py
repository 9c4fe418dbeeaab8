"""Pauses outlive Redis, and a worker of the real scheduler obeys them."""

from __future__ import annotations

import time
from collections.abc import Callable

import sqlalchemy as sa

from sluice_core.adapters.db import job_counts, steering
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_core.runtime.deps import StageDeps
from sluice_scheduler.pauses import PauseMirror
from sluice_testing import factories
from sluice_testing.process import ServerProcess
from sluice_testing.waiting import until


def pause(engine: sa.Engine, queue: str) -> bool:
    with write(engine) as connection:
        return steering.pause(connection, queue, by="a test", now=1.0)


def test_an_emptied_redis_is_told_at_once_and_a_stale_pause_goes_when_seen_twice(
    deps: StageDeps, engine: sa.Engine
) -> None:
    assert pause(engine, "parse.low")
    assert not pause(engine, "parse.low")
    mirror = PauseMirror(deps)
    mirror.turn()
    assert deps.broker.paused() == mirror.known() == {"parse.low"}
    deps.broker.client.flushdb()
    # Only Redis knows this one: the database may have been read a moment before it was written.
    deps.broker.pause("parse.high")
    mirror.turn()
    assert deps.broker.paused() == {"parse.low", "parse.high"}
    mirror.turn()
    assert deps.broker.paused() == {"parse.low"}
    with write(engine) as connection:
        assert steering.resume(connection, "parse.low")
        assert not steering.resume(connection, "parse.low")
    mirror.turn()
    mirror.turn()
    assert deps.broker.paused() == frozenset()


def test_paused_callbacks_wait_for_the_end_of_the_pause_over_an_emptied_redis(
    start_scheduler: Callable[..., ServerProcess],
    engine: sa.Engine,
    deps: StageDeps,
) -> None:
    queue = "notify.default"
    pause(engine, queue)
    now = time.time()
    with write(engine) as connection:
        run = factories.run_at(
            connection, Actor.TRANSCODE, now=now, callback_url="http://127.0.0.1:9/told"
        )
        factories.finish(connection, run, now=now)
    start_scheduler()
    for _ in range(2):
        until(lambda: deps.broker.waiting([queue])[queue])
        deps.broker.client.flushdb()
    until(lambda: deps.broker.waiting([queue])[queue])
    assert deps.broker.in_flight([queue])[queue] == 0
    assert not tried(engine)
    with write(engine) as connection:
        steering.resume(connection, queue)
    until(lambda: tried(engine))
    # What is counted by changes is added up meanwhile.
    until(lambda: not changes(engine))
    with read(engine) as connection:
        assert job_counts.read(connection)[Status.SUCCESS] == 1


def changes(engine: sa.Engine) -> bool:
    with read(engine) as connection:
        return job_counts.has_changes(connection)


def test_a_drain_is_forgotten_after_a_day(engine: sa.Engine) -> None:
    with write(engine) as connection:
        assert steering.ask_to_drain(connection, "w1", now=1.0)
        assert not steering.ask_to_drain(connection, "w1", now=2.0)
        assert steering.ask_to_drain(connection, "w2", now=2.0 + steering.DRAIN_KEPT)
        assert steering.draining(connection) == {"w2"}


def tried(engine: sa.Engine) -> bool:
    """Whether somebody made an attempt to send the callback."""
    with read(engine) as connection:
        row = connection.execute(sa.text("SELECT tries, outcome FROM callbacks")).one()
    return bool(row.tries or row.outcome)
