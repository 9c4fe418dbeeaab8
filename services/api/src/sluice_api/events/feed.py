"""What Redis says: the one reader of the stream of events in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gevent
import redis
import structlog

from sluice_core.adapters import events
from sluice_core.adapters.events import Event
from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError

log = structlog.get_logger(__name__)

#: Entries read in one go.
CHUNK = 200
#: Seconds between tries while Redis is away, longer each time.
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)


class Feed:
    """Reads the stream from now on.

    Args:
        stream: Redis client that may block longer than `block`.
        block: seconds that one read waits.

    """

    def __init__(self, stream: redis.Redis, *, block: float) -> None:
        self._stream = stream
        self._block = block

    def follow(self, hear: Callable[[Event], None], *, wanted: Callable[[], bool]) -> None:
        """Pass each event on, as long as it is wanted; what is missed while away stays missed."""
        last = "$"
        failures = 0
        while wanted():
            # Where Redis always has something, nobody else would have a turn.
            gevent.sleep(0)
            try:
                for entry_id, fields in self._read(last):
                    last = entry_id
                    event = _decoded(fields)
                    if event is not None:
                        hear(event)
                failures = 0
            except BrokerAwayError as exc:
                if failures == 0:
                    log.warning("event_stream_away", error=str(exc))
                gevent.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def _read(self, last: str) -> Iterator[tuple[str, dict[Any, Any]]]:
        with call():
            answer: Any = self._stream.xread(
                {keys.EVENTS: last}, count=CHUNK, block=int(self._block * 1000)
            )
        # Both forms in which servers answer, by protocol version.
        streams = answer.values() if isinstance(answer, dict) else [s[1] for s in answer or ()]
        for entries in streams:
            yield from _flat(entries)

    def close(self) -> None:
        self._stream.close()


def _decoded(fields: dict[Any, Any]) -> Event | None:
    try:
        return events.decode(fields)
    except (ValueError, TypeError, KeyError):
        # Of another release, or not ours; the database tells what it was about.
        log.warning("event_unreadable")
        return None


def _flat(entries: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    for entry in entries:
        if isinstance(entry, list):
            # One level deeper in the newer protocol.
            yield from _flat(entry)
        else:
            yield entry
