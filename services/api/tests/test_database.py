"""Transactions in real threads: none shares an engine with another, none is waited for for ever."""

from __future__ import annotations

import threading
import time

import gevent
import pytest
import sqlalchemy as sa

from sluice_api.database import Database
from sluice_core.adapters.db.engine import open_engine
from sluice_core.domain.errors import StoreAwayError
from sluice_testing.waiting import PATIENCE


@pytest.mark.usefixtures("engine")
def test_no_two_threads_share_an_engine(database_url: str) -> None:
    busy: set[int] = set()
    shared: list[int] = []
    opened: list[sa.Engine] = []

    def open_one() -> sa.Engine:
        opened.append(open_engine(database_url, pool_size=1))
        return opened[-1]

    def work(connection: sa.Connection) -> None:
        engine = id(connection.engine)
        if engine in busy:
            shared.append(engine)
        busy.add(engine)
        time.sleep(0.05)  # the others begin meanwhile
        busy.discard(engine)

    database = Database(open_one, threads=4)
    try:
        gevent.joinall([gevent.spawn(database.read, work) for _ in range(16)], raise_error=True)
    finally:
        database.close()
    assert not shared
    assert 1 < len(opened) <= 4


def test_nobody_waits_for_ever_for_a_frozen_database(database_url: str) -> None:
    thaw = threading.Event()

    def freeze(_connection: sa.Connection) -> None:
        thaw.wait(2 * PATIENCE)

    database = Database(lambda: open_engine(database_url, pool_size=1), threads=2, patience=0.3)
    try:
        # The last two find both threads taken.
        asked = [gevent.spawn(database.read, freeze) for _ in range(4)]
        gevent.joinall(asked, timeout=PATIENCE)
        assert [type(one.exception) for one in asked] == [StoreAwayError] * 4
    finally:
        thaw.set()
        database.close()
