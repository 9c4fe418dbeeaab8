"""All who share a database go by its clock; a machine's own may be as wrong as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from sluice_core.adapters.db import clock as clock_module
from sluice_core.adapters.db.clock import EVERY, TOLERATED, DatabaseClock
from sluice_core.adapters.db.engine import read
from sluice_core.domain.errors import StoreAwayError
from sluice_testing.process import free_port

Opened = Callable[..., sa.Engine]
#: Seconds that one look may take on a busy machine.
SLOW = 30.0
WRONG = (600.0, -600.0, 3600.0)


class Hands:
    """A machine's clock, and the seconds that go by, as a test sets them."""

    def __init__(self) -> None:
        self.unix, self.steady = 5000.0, 100.0

    def clock(self) -> DatabaseClock:
        return DatabaseClock(own=lambda: self.unix, steady=lambda: self.steady)

    def go_on(self, seconds: float) -> None:
        self.unix += seconds
        self.steady += seconds


class Database:
    """Tells a time, on the way to which and from which seconds go by."""

    def __init__(self, hands: Hands, *, moment: float, there: float = 0.0, back: float = 0.0):
        self._hands, self._moment, self._there, self._back = hands, moment, there, back

    def execute(self, _query: str) -> Database:
        self._hands.go_on(self._there + self._back)
        return self

    def fetchone(self) -> tuple[float]:
        return (self._moment,)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_clock_is_set_right_by_the_database(
    postgres_url: str, opened: Opened, wrong: float
) -> None:
    clock = DatabaseClock(own=lambda: time.time() + wrong)
    assert clock() == pytest.approx(time.time() + wrong, abs=SLOW)
    with read(opened(postgres_url, clock=clock)) as c:
        c.execute(sa.text("SELECT 1"))
    assert clock() == pytest.approx(time.time(), abs=SLOW)
    assert clock.ahead == pytest.approx(wrong, abs=SLOW)


def test_a_machine_set_anew_changes_nothing() -> None:
    hands = Hands()
    clock = hands.clock()
    clock.look(Database(hands, moment=5600.0))
    assert clock() == 5600.0
    hands.go_on(1.0)
    hands.unix -= 86_400.0
    assert clock() == 5601.0


def test_a_right_clock_is_kept_whatever_the_way_takes() -> None:
    hands = Hands()
    clock = hands.clock()
    clock.look(Database(hands, moment=5002.0, there=2.0, back=3.0))
    # It may have been told at the begin or the end of five seconds: that is no reason to doubt.
    assert clock() == hands.unix == 5005.0
    assert clock.ahead == 0.0


@pytest.mark.parametrize(("moment", "then"), [(5600.0, 5600.0), (4400.0, 4405.0)])
def test_a_slow_look_tells_no_more_than_it_knows(moment: float, then: float) -> None:
    """It took five seconds: the nearest of the times that it may be now."""
    hands = Hands()
    clock = hands.clock()
    clock.look(Database(hands, moment=moment, there=5.0))
    assert clock() == then
    # A quick one, of a moment that agrees with that, tells the rest.
    clock.look(Database(hands, moment=moment + 2.0))
    assert clock() == moment + 2.0


def test_it_looks_now_and_then_and_no_more(postgres_url: str, opened: Opened) -> None:
    steps = count()
    seconds = [0.0]
    clock = DatabaseClock(own=time.time, steady=lambda: seconds[0])
    looks: list[int] = []
    ask = clock.look
    clock.look = lambda connection: (looks.append(next(steps)), ask(connection))[1]  # type: ignore[method-assign]
    engine = opened(postgres_url, clock=clock, pool_size=2)

    def use() -> int:
        with read(engine) as one, read(engine) as two:
            one.execute(sa.text("SELECT 1"))
            two.execute(sa.text("SELECT 1"))
        return len(looks)

    assert use() == 1
    seconds[0] += EVERY - 0.1
    assert use() == 1
    seconds[0] += 0.2
    assert use() == 2
    assert use() == 2


class Failing:
    def execute(self, _query: str) -> None:
        raise psycopg.OperationalError


def test_a_look_that_fails_changes_nothing_and_is_not_made_again_by_all() -> None:
    hands = Hands()
    clock = hands.clock()
    with pytest.raises(psycopg.OperationalError):
        clock.look(Failing())
    assert clock() == hands.unix
    # Nobody knows yet: the next one asks.
    assert clock.is_due()
    clock.look(Database(hands, moment=5600.0))
    hands.go_on(EVERY)
    assert clock.is_due()
    with pytest.raises(psycopg.OperationalError):
        clock.look(Failing())
    assert clock() == 5600.0 + EVERY
    assert not clock.is_due()


@pytest.mark.parametrize("rests", [False, True], ids=["opened just now", "rested"])
def test_a_look_that_fails_fails_nobody(
    postgres_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch, *, rests: bool
) -> None:
    hands = Hands()
    clock = hands.clock()
    engine = opened(postgres_url, clock=clock, pool_size=1)
    if rests:
        with read(engine) as c:
            c.execute(sa.text("SELECT 1"))
        hands.go_on(EVERY)
    assert clock.is_due()
    monkeypatch.setattr(clock_module, "_ASK", "SELECT nothing FROM nowhere")
    with read(engine) as c:
        assert c.execute(sa.text("SELECT 1")).scalar_one() == 1


def test_a_database_that_is_away_is_told_as_ever(opened: Opened) -> None:
    engine = opened(f"postgresql+psycopg://u@127.0.0.1:{free_port()}/none", clock=DatabaseClock())
    with pytest.raises(StoreAwayError), read(engine):
        pass


def test_on_one_machine_its_own_clock_is_right(tmp_path: Any, opened: Opened) -> None:
    hands = Hands()
    clock = hands.clock()
    with read(opened(f"sqlite:///{tmp_path / 'sluice.db'}", clock=clock)) as c:
        c.execute(sa.text("SELECT 1"))
    assert clock() == hands.unix


def test_who_is_wrong_is_told_once() -> None:
    hands = Hands()
    clock = hands.clock()

    def told(off: float) -> list[Any]:
        with capture_logs() as logs:
            clock.look(Database(hands, moment=hands.unix - off))
        return [(line["event"], line["ahead_seconds"]) for line in logs]

    assert told(TOLERATED - 0.1) == []
    assert told(TOLERATED + 0.1) == [("clock_is_wrong", 2.1)]
    assert told(-600.0) == []
    assert told(0.0) == []
    assert told(-600.0) == [("clock_is_wrong", -600.0)]
