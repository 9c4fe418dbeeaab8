"""How many runs may talk to one remote host at once, over all workers; and when none may.

All of it lives in Redis, on the server's own clock: emptied or away it lets everybody through, as a
crowd at a host is a discourtesy and no fault.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import redis
import structlog

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError

log = structlog.get_logger(__name__)

#: Seconds after which a slot that nobody renews is free.
SLOT_TTL = 30
#: Seconds until a job that got no slot asks again, at least and at most; in between it grows with
#: how many ask, so that a crowd does not keep all workers busy with asking.
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0

#: KEYS: slots, pause, crowd. ARGV: limit, token, ttl ms, ms until somebody of the crowd is
#: forgotten. Answers {1, 0, 0}, or {0, ms of pause left, size of the crowd}.
_ENTER = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local pause = redis.call('PTTL', KEYS[2])
if pause > 0 then return {0, pause, 0} end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local limit = tonumber(ARGV[1])
if limit == 0 or redis.call('ZCARD', KEYS[1]) < limit or redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  if limit > 0 then
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  redis.call('ZREM', KEYS[3], ARGV[2])
  return {1, 0, 0}
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {0, 0, redis.call('ZCARD', KEYS[3])}
"""

#: KEYS: slots. ARGV: ttl ms, token. A slot that expired meanwhile is taken again: its run goes on.
_RENEW = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""

#: KEYS: pause. ARGV: ms. A pause is never made shorter.
_PAUSE = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
end
return 1
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: ask again in so many seconds."""

    seconds: float
    #: The host asked for it; otherwise too many runs are there.
    paused: bool


def host_of(url: str) -> str:
    """The remote host of a link, without a port, in lower case; empty when it has none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


class HostGate:
    """The door to each remote host.

    Args:
        client: of the `sluice:` keys.
        limit: runs at once per host; 0 is no limit.
        rng: source of the jitter.

    """

    def __init__(self, client: redis.Redis, *, limit: int, rng: random.Random) -> None:
        self._client = client
        self._limit = limit
        self._rng = rng
        self._enter = client.register_script(_ENTER)
        self._renew = client.register_script(_RENEW)
        self._pause = client.register_script(_PAUSE)
        self._lock = Lock()
        #: Token -> host of the slots that this process holds, and for how many who entered.
        self._held: dict[str, str] = {}
        self._inside: Counter[str] = Counter()

    def enter(self, host: str, token: str, *, counted: bool = True) -> Wait | None:
        """Take a slot, or learn how long to wait; None means go.

        Args:
            host: as `host_of` gives it.
            token: whose slot: the job's id.
            counted: whether a slot is needed; without, only a pause keeps out.

        """
        limit = self._limit if counted else 0
        slots, pause, crowd = _keys(host)
        forgotten = round((LONGEST_WAIT * 2 + 5) * 1000)
        try:
            with call():
                answer: Any = self._enter(
                    keys=[slots, pause, crowd], args=[limit, token, SLOT_TTL * 1000, forgotten]
                )
        except BrokerAwayError as exc:
            log.debug("host_gate_open", host=host, error=str(exc))
            self._let_in(token, None)
            return None
        may_go, pause_ms, waiting = answer
        if may_go:
            self._let_in(token, host if limit else None)
            return None
        if pause_ms:
            # A little spread, so that not all of them come in the same moment.
            return Wait(pause_ms / 1000 + self._rng.uniform(0.1, 1.0), paused=True)
        seconds = min(LONGEST_WAIT, FIRST_WAIT * (1 + waiting / (2 * limit)))
        return Wait(seconds * self._rng.uniform(0.5, 1.5), paused=False)

    def _let_in(self, token: str, slot_at: str | None) -> None:
        with self._lock:
            self._inside[token] += 1
            if slot_at:
                self._held[token] = slot_at

    def renew(self) -> None:
        """Keep all slots that this process holds, in one round trip.

        Raises:
            BrokerAwayError: Redis does not answer.

        """
        with self._lock:
            held = list(self._held.items())
        if not held:
            return
        with call(), self._client.pipeline(transaction=False) as pipe:
            for token, host in held:
                self._renew(keys=[_keys(host)[0]], args=[SLOT_TTL * 1000, token], client=pipe)
            pipe.execute()

    def leave(self, token: str) -> None:
        """The other end of an `enter` that said go: the last of a token's gives the slot back."""
        with self._lock:
            self._inside[token] -= 1
            if self._inside[token] > 0:
                return
            del self._inside[token]
            host = self._held.pop(token, None)
        if host is None:
            return
        try:
            with call():
                self._client.zrem(_keys(host)[0], token)
        except BrokerAwayError as exc:
            log.debug("host_slot_kept", host=host, error=str(exc))  # it expires

    def pause(self, host: str, seconds: float) -> None:
        """The host asked for patience: nobody is let in for so long."""
        try:
            with call():
                self._pause(keys=[_keys(host)[1]], args=[max(1, round(seconds * 1000))])
        except BrokerAwayError as exc:
            log.debug("host_pause_lost", host=host, error=str(exc))


def _keys(host: str) -> tuple[str, str, str]:
    return keys.host_slots(host), keys.host_pause(host), keys.host_crowd(host)
