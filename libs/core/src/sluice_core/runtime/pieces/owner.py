"""Who owns a job while one of its runs puts something away for the next."""

from __future__ import annotations

from sluice_core.adapters.db import liveness
from sluice_core.adapters.db.engine import read
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.states import Status
from sluice_core.runtime.pieces.saver import Owner
from sluice_core.runtime.run import Run

#: Nobody goes on from what such a job left.
_OVER = {Status.SUCCESS, Status.PARTIAL, Status.CANCELED}


def owner(run: Run) -> Owner:
    """Who owns the run's job now, as the database says."""
    try:
        with read(run.deps.engine) as connection:
            found = liveness.owners(connection, [run.job.id]).get(run.job.id)
    except StoreAwayError:
        # Nobody can have taken the job from us while nobody can reach the database.
        return Owner.SELF
    if found is None or found[1] in _OVER:
        return Owner.NOBODY
    return Owner.SELF if found[0] == run.id.epoch else Owner.OTHER
