"""How much work may be under way: beyond, new jobs are refused until some has been done."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from sluice_api.caller import Caller
from sluice_api.problems import Code, ProblemError
from sluice_api.submit import Accepted
from sluice_core.adapters.db import job_counts, listing

#: Seconds after which a refused client may try again.
RETRY_AFTER = 60


def check_room(
    connection: sa.Connection,
    placed: Iterable[Accepted | ProblemError],
    *,
    caller: Caller,
    cap: int,
) -> None:
    """To be called in the transaction that placed jobs, which ends with the refusal.

    Raises:
        ProblemError: there were new ones, and they are too many.

    """
    if any(isinstance(one, Accepted) and one.message is not None for one in placed):
        check_active(connection, caller=caller, cap=cap)


def check_active(connection: sa.Connection, *, caller: Caller, cap: int) -> None:
    """To be called in the transaction that made jobs active.

    Raises:
        ProblemError: too many are, in all or of this key.

    """
    if job_counts.active(connection) > cap:
        raise _refusal(
            Code.TOO_MANY_JOBS,
            f"{cap} jobs are under way already; try again when some have ended.",
        )
    most = caller.max_active_jobs
    if not most or caller.api_key_id is None:
        return
    if listing.active_of_key(connection, caller.api_key_id, cap=most + 1) > most:
        raise _refusal(
            Code.QUOTA_EXCEEDED,
            f"This API key may have {most} jobs under way; try again when some have ended.",
        )


def _refusal(code: Code, detail: str) -> ProblemError:
    return ProblemError(429, code, detail, headers={"Retry-After": str(RETRY_AFTER)})
