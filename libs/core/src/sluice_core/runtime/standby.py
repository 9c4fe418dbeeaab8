"""The worker's side of a mark: see `sluice_core.domain.standby`."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis as redis_library
import structlog

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.standby import Standby

log = structlog.get_logger(__name__)

#: Seconds after which an answer that is not repeated is forgotten.
ANSWER_TTL = 10


class StandbyWatch:
    """Looks whether this worker's pod is marked.

    Args:
        signals: client of the `sluice:` keys.
        pod: name of the pod.

    """

    def __init__(self, signals: redis_library.Redis, pod: str) -> None:
        self._signals = signals
        self._key = keys.standby(pod)
        self._answer_key = keys.standby_answer(pod)
        self._known = Standby()
        self._is_quiet: Callable[[], bool] = lambda: False

    def watch(self, is_quiet: Callable[[], bool]) -> None:
        """Who says whether nothing runs, and nothing will before the mark is gone."""
        self._is_quiet = is_quiet

    def look(self) -> None:
        """Ask Redis, and answer a mark once it is obeyed; while Redis is away the mark holds on.

        Raises:
            BrokerAwayError: Redis does not answer.

        """
        before = self._known
        try:
            with call():
                value = self._signals.get(self._key)
        except BrokerAwayError:
            self._known = before.unseen(time.monotonic())
            raise
        self._known = before.seen(value if value is None else str(value), time.monotonic())
        if self._known.name != before.name:
            log.info("standby" if self._known.name else "standby_over", mark=self._known.name)
        self._answer()

    def reason(self) -> str | None:
        """Why nothing may be fetched now, or None."""
        return "on standby" if self._known.name else None

    def confirmed(self) -> str:
        """Name of the mark if the pod may go now; empty otherwise."""
        known = self._known
        return known.name if known.name and self._is_quiet() else ""

    def _answer(self) -> None:
        name = self.confirmed()
        if name:
            with call():
                self._signals.set(self._answer_key, name, ex=ANSWER_TTL)
