"""Database work in real threads: a lock that another process holds must not stop the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import sqlalchemy as sa

from sluice_api.threads import Threads
from sluice_core.adapters.db import engine as db
from sluice_core.domain.errors import StoreAwayError

#: Seconds after which a request is answered without the database: longer than its own timeouts,
#: which end all waits but those for one that is frozen.
PATIENCE = 30.0

_T = TypeVar("_T")
_Begin = Callable[[sa.Engine], AbstractContextManager[sa.Connection]]


class Database:
    """Runs functions that take a connection, each in one transaction.

    No engine is ever used by two threads at once: SQLAlchemy's locks are gevent's here, and a
    thread that has to wait for one of those may sleep for ever.

    Args:
        open_engine: opens an engine of one connection.
        threads: how many transactions may run at once; more wait their turn.
        patience: seconds that a caller waits, its turn included.

    """

    def __init__(
        self, open_engine: Callable[[], sa.Engine], *, threads: int, patience: float = PATIENCE
    ) -> None:
        self._open_engine = open_engine
        #: Those at rest, the one that was used last at the right: few are kept busy, and warm.
        self._engines: deque[sa.Engine] = deque()
        self._threads = Threads(threads, patience=patience)

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
        while self._engines:
            self._engines.pop().dispose()

    def _run(self, begin: _Begin, work: Callable[[sa.Connection], _T]) -> _T:
        def transaction() -> _T:
            with self._engine() as engine, begin(engine) as connection:
                return work(connection)

        try:
            return self._threads.run(transaction)
        except TimeoutError as exc:
            raise StoreAwayError(f"The database gives no answer: {exc}") from exc

    @contextmanager
    def _engine(self) -> Iterator[sa.Engine]:
        """An engine for the calling thread alone."""
        try:
            engine = self._engines.pop()
        except IndexError:
            engine = self._open_engine()
        try:
            yield engine
        finally:
            self._engines.append(engine)
