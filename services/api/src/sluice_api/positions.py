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
        found: dict[str, int] = {}
        try:
            with gevent.Timeout(self._patience, BrokerAwayError("it took too long")):
                for job_id, (queue, message_id) in list(messages.items())[:MAX_LOOKUPS]:
                    before = self._broker.position(queue, message_id)
                    if before is not None:
                        found[job_id] = before + 1
        except BrokerAwayError as exc:
            log.warning("positions_unknown", error=str(exc))
            self._paused_until = time.monotonic() + PAUSE
        return found
