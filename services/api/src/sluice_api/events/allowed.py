"""Whether keys are still open, asked once for all streams of a key."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent
import structlog

from sluice_api.database import Database
from sluice_core.adapters import tracing
from sluice_core.adapters.db import access
from sluice_core.domain.errors import StoreAwayError

log = structlog.get_logger(__name__)

#: Seconds that an answer holds: a stream outlives its key by two comments at most.
FRESH = 10.0
#: Keys remembered; all are forgotten beyond.
MAX_KEYS = 2_000


class OpenKeys:
    """Asks the database beside whoever wants to know, once for each of a thousand streams.

    Args:
        database: knows the keys.
        clock: seconds that only go forward.

    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._asked: dict[str, tuple[float, bool]] = {}

    @property
    def remembered(self) -> int:
        """Keys of which an answer is kept."""
        return len(self._asked)

    def is_open(self, key_id: str | None) -> bool:
        """As far as is known; does not wait. True without a key, and while the database is away.

        Nothing is told while it is away, so that nothing is told to who may not hear it.
        """
        if key_id is None:
            return True
        asked_at, known = self._asked.get(key_id, (-FRESH, True))
        now = self._clock()
        if now - asked_at >= FRESH:
            self._remember(key_id, is_open=known, asked_at=now)
            gevent.spawn(self._ask, key_id)
        return known

    def _ask(self, key_id: str) -> None:
        tracing.leave()
        try:
            is_open = self._database.read(lambda c: access.get_open(c, key_id)) is not None
        except StoreAwayError as exc:
            log.warning("key_not_asked", error=str(exc))
            return
        self._remember(key_id, is_open=is_open, asked_at=self._clock())

    def _remember(self, key_id: str, *, is_open: bool, asked_at: float) -> None:
        if len(self._asked) >= MAX_KEYS:
            self._asked.clear()
        self._asked[key_id] = (asked_at, is_open)
