"""Events go out in order and beside the work, however Redis is."""

from __future__ import annotations

import time
from threading import Event, Lock
from typing import Any

import pytest
import redis

from sluice_core.adapters import events
from sluice_core.adapters.redis import connect
from sluice_core.domain import keys
from sluice_core.runtime import teller as module
from sluice_core.runtime.teller import Teller
from sluice_testing.waiting import PATIENCE, until


def event(job_id: str, version: int, kind: str = "progress") -> events.Event:
    return events.Event(
        kind=kind,
        job_id=job_id,
        parent_id=None,
        api_key_id=None,
        version=version,
        status="DOWNLOADING",
        waiting_for=None,
        progress={},
    )


class Gate:
    """Lets nothing through until it is opened: a Redis that is silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked, self._lock = Event(), 0, Lock()
        send = events.emit

        def emit(client: redis.Redis, told: events.Event) -> str:
            with self._lock:
                self.asked += 1
            self.open.wait(2 * PATIENCE)
            return send(client, told)

        monkeypatch.setattr(events, "emit", emit)


def sent(client: redis.Redis) -> list[tuple[str, int]]:
    entries: Any = client.xrange(keys.EVENTS)
    found = [events.decode(fields) for _, fields in entries]
    return [(e.job_id, e.version) for e in found]


def test_a_silent_redis_makes_nobody_wait(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(redis_url)
    gate, teller = Gate(monkeypatch), Teller(client)
    began = time.monotonic()
    teller.tell(event("a", 1, "job"))
    until(lambda: gate.asked)
    for version in range(2, 5000):
        teller.tell(event("a", version))
        teller.tell(event("b", version))
    teller.tell(event("a", 5000, "job"))
    assert time.monotonic() - began < PATIENCE
    gate.open.set()
    teller.close()
    # Of progress the newest; of all else everything.
    assert sent(client) == [("a", 1), ("a", 4999), ("b", 4999), ("a", 5000)]
    client.close()


def test_what_waits_is_bounded(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    client = connect(redis_url)
    gate, teller = Gate(monkeypatch), Teller(client)
    teller.tell(event("a", 0, "job"))
    until(lambda: gate.asked)
    for version in range(1, 9):
        teller.tell(event("a", version, "job"))
    gate.open.set()
    teller.close()
    assert [version for _, version in sent(client)] == [0, 6, 7, 8]
    client.close()
