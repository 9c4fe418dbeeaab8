"""Database work in real threads: a lock that another process holds must not stop the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import sqlalchemy as sa

from sluice_api.threads import Threads
from sluice_core.adapters.db import engine as db

_T = TypeVar("_T")
_Begin = Callable[[sa.Engine], AbstractContextManager[sa.Connection]]


class Database:
    """Runs functions that take a connection, each in one transaction.

    Args:
        engine: whose pool holds at least as many connections as there are threads.
        threads: how many transactions may run at once; more wait their turn.

    """

    def __init__(self, engine: sa.Engine, *, threads: int) -> None:
        self._engine = engine
        self._threads = Threads(threads)

    def read(self, work: Callable[[sa.Connection], _T]) -> _T:
        """The result of `work` in a transaction that only reads.

        Raises:
            StoreAwayError: the database does not answer.

        """
        return self._run(db.read, work)

    def write(self, work: Callable[[sa.Connection], _T]) -> _T:
        """The result of `work` in a transaction that is committed when it returns.

        Raises:
            StoreAwayError: the database does not answer.

        """
        return self._run(db.write, work)

    def close(self) -> None:
        self._threads.close()
        self._engine.dispose()

    def _run(self, begin: _Begin, work: Callable[[sa.Connection], _T]) -> _T:
        def transaction() -> _T:
            with begin(self._engine) as connection:
                return work(connection)

        return self._threads.run(transaction)
