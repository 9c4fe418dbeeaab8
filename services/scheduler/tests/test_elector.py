"""One leads, whoever is suspended, cut off or killed; clocks here are the test's own."""

from __future__ import annotations

import sqlalchemy as sa

from sluice_core.adapters.db import leases
from sluice_core.adapters.db.engine import read, write
from sluice_scheduler.elector import DatabaseElector

PATIENCE = 10.0


def leaders(engine: sa.Engine, count: int = 2) -> list[DatabaseElector]:
    return [DatabaseElector(engine, holder=f"s{n}", patience=PATIENCE) for n in range(count)]


def row(engine: sa.Engine) -> leases.Lease:
    with read(engine) as connection:
        return leases.look(connection, leases.SCHEDULER)


def test_the_first_one_leads_at_once_and_keeps_leading(engine: sa.Engine) -> None:
    one, two = leaders(engine)
    assert one.turn(0.0)
    for now in range(0, 100, 2):
        assert not one.turn(now)
        assert not two.turn(now)
        assert one.held(now)
        assert not two.held(now)
    assert row(engine).fence == 1


def test_a_silent_leader_is_followed_after_the_patience(engine: sa.Engine) -> None:
    one, two = leaders(engine)
    one.turn(0.0)
    taken = next(now for now in range(0, 100, 2) if two.turn(now))
    assert PATIENCE <= taken <= PATIENCE + 4
    # It stopped by itself before.
    assert one.held(PATIENCE * 0.6) is None
    held = two.held(taken)
    assert held is not None
    assert held.fence == 2


def test_a_suspended_follower_does_not_judge(engine: sa.Engine) -> None:
    one, two = leaders(engine)
    one.turn(0.0)
    assert not two.turn(1.0)
    # The first look after a long sleep sees the same row, and that is no proof of anything.
    assert not two.turn(500.0)
    assert one.turn(500.0) is False


def test_a_suspended_leader_writes_nothing(engine: sa.Engine) -> None:
    one, two = leaders(engine)
    one.turn(0.0)
    old = one.held(0.0)
    assert old is not None
    for now in range(0, 14, 2):
        two.turn(now)
    with write(engine) as connection:
        assert not leases.confirm(connection, old)
        assert not leases.beat(connection, old)
        leases.give_back(connection, old)
    assert row(engine).holder == "s1"


def test_given_back_is_taken_at_once(engine: sa.Engine) -> None:
    one, two = leaders(engine)
    one.turn(0.0)
    two.turn(1.0)
    one.give_back()
    assert two.turn(1.5)
    assert row(engine).fence == 2


def test_two_that_saw_the_same_row(engine: sa.Engine) -> None:
    seen = row(engine)
    with write(engine) as connection:
        assert leases.take(connection, seen, "a")
    with write(engine) as connection:
        assert leases.take(connection, seen, "b") is None
    assert row(engine).holder == "a"
