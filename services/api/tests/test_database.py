"""Transactions in real threads: no two of them ever share an engine, or wait for each other's."""

from __future__ import annotations

import time

import gevent
import pytest
import sqlalchemy as sa

from sluice_api.database import Database
from sluice_core.adapters.db.engine import open_engine


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
