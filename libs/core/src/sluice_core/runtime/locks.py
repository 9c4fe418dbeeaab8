"""The idempotency lock: one key per stage of a job, held by the newest run, its epoch the value.

It saves work, and nothing rests on it: that a job runs once is the doing of the database alone. So
a Redis that is away is no obstacle here.
"""

from __future__ import annotations

from collections.abc import Iterable

import redis
import structlog

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.lanes import Actor

log = structlog.get_logger(__name__)

#: Seconds after which a lock that nobody renews is gone.
TTL = 60

#: Takes, keeps and takes over; never from a higher epoch.
_TAKE = """
local held = tonumber(redis.call('GET', KEYS[1]) or '-1')
if held > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RunLocks:
    """The locks of one stage's runs.

    Args:
        client: of the `sluice:` keys.
        stage: whose runs.

    """

    def __init__(self, client: redis.Redis, stage: Actor) -> None:
        self._client = client
        self._stage = stage
        self._take = client.register_script(_TAKE)
        self._release = client.register_script(_RELEASE)

    def is_behind(self, job_id: str, epoch: int) -> bool:
        """Whether a run of a later epoch holds the job: a message of this one is of no more use.

        A lock is set after its claim was committed, and epochs only rise; so a yes is sure. A no
        says nothing.
        """
        try:
            with call():
                held = self._client.get(self._key(job_id))
        except BrokerAwayError as exc:
            log.debug("lock_unknown", job=job_id, error=str(exc))
            return False
        return held is not None and int(held) > epoch

    def take(self, job_id: str, epoch: int) -> bool:
        """Take or renew; False when a later run holds it, or nobody can tell."""
        try:
            with call():
                return bool(self._take(keys=[self._key(job_id)], args=[epoch, TTL]))
        except BrokerAwayError as exc:
            log.debug("lock_not_taken", job=job_id, error=str(exc))
            return False

    def renew(self, runs: Iterable[tuple[str, int]]) -> None:
        """Renew those of all (job id, epoch), in one round trip.

        Raises:
            BrokerAwayError: Redis does not answer.

        """
        with call(), self._client.pipeline(transaction=False) as pipe:
            for job_id, epoch in runs:
                self._take(keys=[self._key(job_id)], args=[epoch, TTL], client=pipe)
            pipe.execute()

    def release(self, job_id: str, epoch: int) -> None:
        """Give back one's own; another run's is left alone."""
        try:
            with call():
                self._release(keys=[self._key(job_id)], args=[epoch])
        except BrokerAwayError as exc:
            log.debug("lock_not_released", job=job_id, error=str(exc))  # it expires

    def _key(self, job_id: str) -> str:
        return keys.lock(job_id, self._stage.value)
