"""Events on their way to Redis, in a thread of their own: a silent Redis makes nobody wait."""

from __future__ import annotations

from collections import OrderedDict
from threading import Condition, Thread

import redis
import structlog

from sluice_core.adapters import events
from sluice_core.adapters.events import Event
from sluice_core.domain.errors import BrokerAwayError

log = structlog.get_logger(__name__)

#: Events that wait; the oldest go first. What is lost is made good from the database.
MAX_WAITING = 1000
#: Seconds that the end of a process waits for the last ones.
LAST_PATIENCE = 1.0

_PROGRESS = "progress"


class Teller:
    """Sends events in order; of a job's progress only the newest waits.

    Args:
        client: of the `sluice:` keys.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._news = Condition()
        #: Progress under its job's id, all else under a number.
        self._waiting: OrderedDict[str | int, Event] = OrderedDict()
        self._number = 0
        self._closing = False
        self._thread: Thread | None = None

    def tell(self, event: Event) -> None:
        """Send soon, or never; returns at once."""
        with self._news:
            self._number += 1
            key = event.job_id if event.kind == _PROGRESS else self._number
            self._waiting[key] = event
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
            if self._thread is None:
                self._thread = Thread(target=self._send_all, name="events", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Send what waits, if that takes no longer than `LAST_PATIENCE`."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(LAST_PATIENCE)

    def _send_all(self) -> None:
        while (event := self._next()) is not None:
            try:
                events.emit(self._client, event)
            except BrokerAwayError as exc:
                log.debug("event_lost", job=event.job_id, error=str(exc))
            except Exception:
                # The one thread that sends must outlive any surprise.
                log.exception("event_failed", job=event.job_id)

    def _next(self) -> Event | None:
        """Waits for the next one; None at the end."""
        with self._news:
            while not self._waiting:
                if self._closing:
                    return None
                self._news.wait()
            return self._waiting.popitem(last=False)[1]
