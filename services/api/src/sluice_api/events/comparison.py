"""What the database says: which jobs changed since the last look, whatever Redis told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlalchemy as sa

from sluice_api.database import Database
from sluice_core.adapters.db import changes
from sluice_core.adapters.db.changes import Change

#: Seconds that a transaction may take from its time stamp to its commit, and clocks may differ.
OVERLAP = 5.0
#: Changes looked at in one comparison; the next one goes on from there.
MAX_CHANGES = 10_000
#: Jobs looked at by name in one comparison; the next one goes on with the others.
MAX_NAMED = 1_000
_PAGE = 1_000
_CHUNK = 200


class Comparison:
    """Goes through the changes by the time that was stamped on them, and through jobs by name.

    Args:
        database: the truth.
        clock: Unix seconds, as workers stamp their writes.

    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        #: All changes stamped before this, less `OVERLAP`, were looked at.
        self.cursor = 0.0
        #: The last job that was looked at by name.
        self._name = ""

    def begin(self) -> float:
        """Forget what was before now, which is returned."""
        self.cursor = self._clock()
        return self.cursor

    def by_time(self) -> Iterator[list[Change]]:
        """Pages of all changes since the last look.

        Raises:
            StoreAwayError: the database does not answer; the next look begins where this one did.

        """
        begun = self._clock()
        moment, after = self.cursor - OVERLAP, ""
        for _ in range(MAX_CHANGES // _PAGE):
            page = self._database.read(_page_of(moment, after))
            yield page
            if len(page) < _PAGE:
                self.cursor = begun
                return
            moment, after = page[-1].updated_at, page[-1].job_id
        # The next look, which goes back by the overlap, goes on from here.
        self.cursor = min(begun, moment + OVERLAP)

    def by_name(self, jobs: set[str]) -> Iterator[list[Change]]:
        """Pages of jobs that are to be seen whatever the clock of their worker says.

        Raises:
            StoreAwayError: as `by_time`.

        """
        named = sorted(jobs)
        turn = [job_id for job_id in named if job_id > self._name][:MAX_NAMED]
        turn += [job_id for job_id in named if job_id <= self._name][: MAX_NAMED - len(turn)]
        for start in range(0, len(turn), _CHUNK):
            chunk = turn[start : start + _CHUNK]
            yield self._database.read(_of_jobs(chunk))
            self._name = chunk[-1]


def _page_of(moment: float, after: str) -> Callable[[sa.Connection], list[Change]]:
    return lambda c: changes.since(c, moment, after_id=after, limit=_PAGE)


def _of_jobs(job_ids: list[str]) -> Callable[[sa.Connection], list[Change]]:
    return lambda c: changes.of_jobs(c, job_ids)
