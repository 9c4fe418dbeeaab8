"""Whether keys are still open, asked once for all streams of a key."""

from __future__ import annotations

import time
from collections.abc import Callable

from sluice_api.database import Database
from sluice_core.adapters.db import access
from sluice_core.domain.errors import StoreAwayError

#: Seconds that an answer holds: a stream outlives its key by this and the time between comments.
FRESH = 10.0
#: Keys remembered; all are forgotten beyond.
MAX_KEYS = 2_000


class OpenKeys:
    """Asks the database, but not again for each of a thousand streams.

    Args:
        database: knows the keys.
        clock: seconds that only go forward.

    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._asked: dict[str, tuple[float, bool]] = {}

    def is_open(self, key_id: str | None) -> bool:
        """True without a key, and while the database is away: nothing is told then either."""
        if key_id is None:
            return True
        asked_at, known = self._asked.get(key_id, (-FRESH, True))
        now = self._clock()
        if now - asked_at < FRESH:
            return known
        # Noted before the answer is there: who asks meanwhile gets the old one.
        self._remember(key_id, now, is_open=known)
        try:
            is_open = self._database.read(lambda c: access.get_open(c, key_id)) is not None
        except StoreAwayError:
            return True
        self._remember(key_id, now, is_open=is_open)
        return is_open

    def _remember(self, key_id: str, now: float, *, is_open: bool) -> None:
        if len(self._asked) >= MAX_KEYS:
            self._asked.clear()
        self._asked[key_id] = (now, is_open)
