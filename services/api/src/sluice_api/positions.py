"""Places in the queue, as far as Redis tells them in time."""

from __future__ import annotations

import time

import gevent
import structlog

from sluice_core.domain.errors import BrokerAwayError
from sluice_core.runtime.broker import SluiceBroker

log = structlog.get_logger(__name__)

#: Lookups for one answer: each walks a list, and a page of jobs must not walk two hundred.
MAX_LOOKUPS = 25
#: Seconds without a lookup after one that failed.
PAUSE = 2.0


class Positions:
    """Looks up where messages stand; knows nothing, rather than waits, while Redis is away."""

    def __init__(self, broker: SluiceBroker, *, patience: float) -> None:
        self._broker = broker
        self._patience = patience
        self._paused_until = 0.0

    def find(self, messages: dict[str, tuple[str, str]]) -> dict[str, int]:
        """Job id -> place, 1 for the next one, of those that wait.

        Args:
            messages: job id -> (queue, message id).

        """
        if not messages or time.monotonic() < self._paused_until:
            return {}
        asked = dict(list(messages.items())[:MAX_LOOKUPS])
        try:
            with gevent.Timeout(self._patience, BrokerAwayError("it took too long")):
                sights = self._broker.sights(list(asked.values()))
        except BrokerAwayError as exc:
            log.warning("positions_unknown", error=str(exc))
            self._paused_until = time.monotonic() + PAUSE
            return {}
        return {
            job_id: sight.before + 1
            for job_id, sight in zip(asked, sights, strict=True)
            if sight.before is not None
        }
