"""Paused queues: Redis is made to say what the database says."""

from __future__ import annotations

import structlog

from sluice_core.adapters.db import steering
from sluice_core.adapters.db.engine import read
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.runtime.deps import StageDeps

log = structlog.get_logger(__name__)


class PauseMirror:
    """Carries pauses to a Redis that was emptied, or away when they changed.

    A pause that Redis lacks is set at once. One that only Redis knows is taken back when it was
    seen twice: the first time, the database may just have been read a moment too early.
    """

    def __init__(self, deps: StageDeps) -> None:
        self._deps = deps
        self._known: frozenset[str] = frozenset()
        self._stale: frozenset[str] = frozenset()

    def known(self) -> frozenset[str]:
        """Paused queues as last read."""
        return self._known

    def turn(self) -> None:
        """To be called every few seconds.

        Raises:
            StoreAwayError: nobody can tell now.
            BrokerAwayError: the same.

        """
        with read(self._deps.engine) as connection:
            self._known = frozenset(steering.paused(connection))
        broker = self._deps.broker
        shown = broker.paused()
        missing, stale = self._known - shown, shown - self._known
        over = stale & self._stale
        if missing:
            broker.pause(*sorted(missing))
        if over:
            broker.resume(*sorted(over))
        if missing or over:
            log.info("pauses_mirrored", paused=sorted(missing), resumed=sorted(over))
        self._stale = stale - over

    def first_turn(self) -> None:
        """Before anything is fetched; while a store is away, later turns do it."""
        try:
            self.turn()
        except (StoreAwayError, BrokerAwayError) as exc:
            log.warning("pauses_unknown", reason=str(exc))
