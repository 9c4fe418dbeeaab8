"""Rate limits of API keys: counted in Redis for all processes, the one importer of `limits`.

While Redis is away nobody is locked out and nobody is let loose: each process counts for itself.
"""

from __future__ import annotations

import math
import time

import gevent
import redis
import structlog
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from sluice_api.problems import Code, ProblemError
from sluice_core.adapters.db.access import ApiKey, Scope
from sluice_core.adapters.metrics import ApiMetrics
from sluice_core.adapters.redis import call
from sluice_core.adapters.settings import HttpSettings
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError

log = structlog.get_logger(__name__)

#: Seconds in which Redis is not asked again after it did not answer.
PAUSE = 2.0


def own_limit(key: ApiKey, own: int | None, usual: int) -> int:
    """The figure that holds for a key; 0 is no limit.

    Operators are not held up by what holds for all: they come when something is wrong.
    """
    if own is not None:
        return own
    return 0 if Scope.OPERATE in key.scopes else usual


class Throttle:
    """Counts the requests of each key over a sliding minute.

    Args:
        signals: client of the `sluice:` keys; its timeout is what a request may lose here.
        http: with the limit that holds for most keys.
        metrics: told what was not counted in Redis.

    """

    def __init__(self, signals: redis.Redis, http: HttpSettings, metrics: ApiMetrics) -> None:
        self._usual = http.key_requests_per_minute
        self._metrics = metrics
        self._shared = SlidingWindowCounterRateLimiter(
            RedisStorage(
                "redis://",
                connection_pool=signals.connection_pool,
                key_prefix=keys.LIMITS,
            )
        )
        self._own: SlidingWindowCounterRateLimiter | None = None
        self._paused_until = 0.0

    def check(self, key: ApiKey) -> None:
        """Count a request.

        Raises:
            ProblemError: 429, the key has sent too many within the last minute.

        """
        limit = own_limit(key, key.limits.requests_per_minute, self._usual)
        if not limit:
            return
        item = RateLimitItemPerMinute(limit)
        if not self._is_within(item, key.id):
            raise ProblemError(
                429,
                Code.TOO_MANY_REQUESTS,
                f"This API key may send {limit} requests a minute; wait a little.",
                headers={"Retry-After": str(self._seconds_left(item, key.id))},
            )

    def _is_within(self, item: RateLimitItemPerMinute, key_id: str) -> bool:
        if time.monotonic() >= self._paused_until:
            try:
                with call():
                    return self._shared.hit(item, key_id)
            except BrokerAwayError as exc:
                log.warning("rate_limits_not_shared", error=str(exc))
                self._paused_until = time.monotonic() + PAUSE
        self._metrics.rate_limit_skipped()
        return self._alone().hit(item, key_id)

    def _alone(self) -> SlidingWindowCounterRateLimiter:
        if self._own is None:
            self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        return self._own

    def _seconds_left(self, item: RateLimitItemPerMinute, key_id: str) -> int:
        """Whole seconds until one more request fits."""
        counted_by = self._alone() if time.monotonic() < self._paused_until else self._shared
        try:
            with call(), gevent.Timeout(1.0, BrokerAwayError("it took too long")):
                reset_at = counted_by.get_window_stats(item, key_id).reset_time
        except BrokerAwayError:
            return 1
        return min(60, max(1, math.ceil(reset_at - time.time())))
