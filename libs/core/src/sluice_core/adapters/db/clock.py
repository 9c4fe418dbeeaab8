"""One clock for all who write moments into one database: the database's.

What one machine writes, another one compares with its own present: when a row is due, a file's
time is over. Machines' clocks differ, by minutes where one has lost its time server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)

#: Seconds between two looks.
EVERY = 10.0
#: Seconds by which a machine's clock may differ before somebody should see to it.
TOLERATED = 2.0
# Of now, not of the transaction's begin as `now()` is.
_ASK = "SELECT extract(epoch FROM clock_timestamp())::float8"


def _steady() -> float:
    """Seconds that only go forward, while the machine sleeps too where it can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class DatabaseClock:
    """The time of the database, without asking it each time; of any thread.

    It looks at the database's clock now and then, on a connection that is about to be used
    (`engine.open_engine`), and counts from there by seconds that only go forward: who sets this
    machine's clock changes nothing. A look tells the time no better than to the length of its
    own way. So nothing is changed that agrees with it: a machine whose clock is right keeps it.

    Before the first look, and for SQLite, which never gets one since all of its users share one
    machine, it is this machine's clock.

    Args:
        own: Unix seconds by this machine's clock.
        steady: seconds from any beginning.

    """

    def __init__(
        self,
        *,
        own: Callable[[], float] = time.time,
        steady: Callable[[], float] = _steady,
    ) -> None:
        self._own = own
        self._steady = steady
        #: What makes Unix seconds of steady ones. Set in one step: a lock may not be waited for
        #: in the API's threads, and two looks at once are both right.
        self._offset: float | None = None
        self._due = 0.0
        self._told = False

    def __call__(self) -> float:
        """Unix seconds."""
        offset = self._offset
        return self._own() if offset is None else self._steady() + offset

    @property
    def ahead(self) -> float:
        """Seconds by which this machine's clock is ahead; negative when it is behind."""
        return self._own() - self()

    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return self._offset is None or self._steady() >= self._due

    def look(self, connection: Any) -> None:
        """Ask the database.

        Args:
            connection: psycopg's, in no transaction.

        Raises:
            psycopg.Error: it gives no answer; the clock goes on as before.

        """
        begun = self._steady()
        # First: one look at a time is enough, and one that fails is not made again by all.
        self._due = begun + EVERY
        (moment,) = connection.execute(_ASK).fetchone()
        ended = self._steady()
        offset = self._own() - ended if self._offset is None else self._offset
        # The moment lay between the two.
        self._offset = min(max(offset, moment - ended), moment - begun)
        self._tell()

    def _tell(self) -> None:
        ahead = self.ahead
        if abs(ahead) <= TOLERATED:
            self._told = False
        elif not self._told:
            self._told = True
            log.warning("clock_is_wrong", ahead_seconds=round(ahead, 1))
