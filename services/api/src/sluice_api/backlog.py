"""How much work may be under way: beyond, new jobs are refused until some has been done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_api.problems import Code, ProblemError
from sluice_api.submit import Accepted
from sluice_core.adapters.db import job_counts, listing

#: Seconds after which a refused client may try again.
RETRY_AFTER = 60
#: Seconds for which it is remembered that there was ample room: more of it than two of the largest
#: batches take, which is more than comes in meanwhile.
FRESH = 1.0
AMPLE = 25_000
#: Keys of which that is remembered.
MAX_KEYS = 1_000


@dataclass(frozen=True, slots=True)
class Quota:
    """What one API key may have under way."""

    #: None without a key, who has no quota.
    api_key_id: str | None
    #: Jobs; 0 is no limit.
    most: int


class Backlog:
    """Compares the jobs under way with what may be.

    To count takes a submit a statement more, and for a key as long as it has jobs under way; so
    nobody counts again while there was ample room a moment ago. Near its cap, each one does.

    Args:
        cap: jobs that may be under way in all.
        clock: seconds that only grow.

    """

    def __init__(self, cap: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cap = cap
        self._clock = clock
        #: Key, or None for all together -> when it had ample room. Each step on it is atomic, so
        #: that real threads share it without a lock.
        self._ample_at: dict[str | None, float] = {}

    def check_room(
        self,
        connection: sa.Connection,
        placed: Iterable[Accepted | ProblemError],
        quota: Quota,
    ) -> None:
        """To be called in the transaction that placed jobs, which ends with the refusal.

        Raises:
            ProblemError: there were new ones, and they are too many, in all or of this key.

        """
        if any(isinstance(one, Accepted) and one.message is not None for one in placed):
            self._check(connection, quota, self._had_ample)

    def check_active(self, connection: sa.Connection, quota: Quota) -> None:
        """To be called in the transaction that made any number of jobs active.

        Raises:
            ProblemError: too many are, in all or of this key.

        """
        self._check(connection, quota, lambda _key: False)

    def _check(
        self, connection: sa.Connection, quota: Quota, is_ample: Callable[[str | None], bool]
    ) -> None:
        if not is_ample(None):
            room = self._cap - job_counts.active(connection)
            if room < 0:
                raise _refusal(
                    Code.TOO_MANY_JOBS,
                    f"{self._cap} jobs are under way already; try again when some have ended.",
                )
            self._remember(None, room)
        key, most = quota.api_key_id, quota.most
        if most and key is not None and not is_ample(key):
            room = most - listing.active_of_key(connection, key, cap=most + 1)
            if room < 0:
                raise _refusal(
                    Code.QUOTA_EXCEEDED,
                    f"This API key may have {most} jobs under way; try again when some have ended.",
                )
            self._remember(key, room)

    def _had_ample(self, key: str | None) -> bool:
        at = self._ample_at.get(key)
        return at is not None and self._clock() - at < FRESH

    def _remember(self, key: str | None, room: int) -> None:
        if room < AMPLE:
            self._ample_at.pop(key, None)
            return
        if len(self._ample_at) >= MAX_KEYS:
            self._ample_at.clear()
        self._ample_at[key] = self._clock()


def _refusal(code: Code, detail: str) -> ProblemError:
    return ProblemError(429, code, detail, headers={"Retry-After": str(RETRY_AFTER)})
