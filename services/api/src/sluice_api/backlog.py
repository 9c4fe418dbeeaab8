"""How much work may be under way: beyond, new jobs are refused until some has been done."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from sluice_api.problems import Code, ProblemError
from sluice_api.submit import Accepted
from sluice_core.adapters.db import jobs as job_store

#: Seconds after which a refused client may try again.
RETRY_AFTER = 60


def check_room(
    connection: sa.Connection, placed: Iterable[Accepted | ProblemError], *, cap: int
) -> None:
    """To be called in the transaction that placed jobs, which ends with the refusal.

    Raises:
        ProblemError: there were new ones, and they are too many.

    """
    is_new = any(isinstance(one, Accepted) and one.message is not None for one in placed)
    if is_new and job_store.has_active_beyond(connection, cap):
        raise ProblemError(
            429,
            Code.TOO_MANY_JOBS,
            f"{cap} jobs are under way already; try again when some have ended.",
            headers={"Retry-After": str(RETRY_AFTER)},
        )
