"""Keys of streams: asked once for all of them, and closed soon after they were revoked."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent
import pytest
import sqlalchemy as sa

from sluice_api.database import Database
from sluice_api.events import allowed
from sluice_api.events.allowed import OpenKeys
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import ApiKey, Scope
from sluice_core.adapters.db.engine import open_engine, write
from sluice_testing.waiting import PATIENCE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def until(condition: Callable[[], bool]) -> None:
    """With gevent's sleep: it is greenlets of this thread that are waited for."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        gevent.sleep(0.01)


@pytest.fixture
def key(engine: sa.Engine) -> ApiKey:
    with write(engine) as connection:
        text, _ = access.create(connection, name="a", scopes=[Scope.READ], now=1.0)
        found = access.lookup(connection, text)
    assert found is not None
    return found


@pytest.fixture
def asked(database_url: str):
    """Keys with a clock of their own, and how often the database was asked."""
    count: list[int] = []

    class Counted(Database):
        def read(self, work):
            count.append(1)
            return super().read(work)

    database = Counted(lambda: open_engine(database_url, pool_size=1), threads=2)
    clock = Clock()
    yield OpenKeys(database, clock=clock), clock, count
    database.close()


def test_a_thousand_streams_ask_once(asked, key: ApiKey) -> None:
    keys, clock, count = asked
    assert all(keys.is_open(key.id) for _ in range(1000))
    until(lambda: bool(count))
    gevent.sleep(0.05)
    assert len(count) == 1
    clock.now += allowed.FRESH + 1
    assert all(keys.is_open(key.id) for _ in range(1000))
    until(lambda: len(count) > 1)
    assert len(count) == 2


def test_a_revoked_key_is_closed_at_the_second_look(asked, key: ApiKey, engine: sa.Engine) -> None:
    keys, clock, _ = asked
    assert keys.is_open(key.id)
    with write(engine) as connection:
        access.revoke(connection, key.id, now=2.0)
    clock.now += allowed.FRESH + 1
    keys.is_open(key.id)
    until(lambda: not keys.is_open(key.id))


def test_it_is_bounded(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, _, _ = asked
    monkeypatch.setattr(allowed, "MAX_KEYS", 3)
    for n in range(10):
        keys.is_open(f"{n:026}")
        assert keys.remembered <= 3
