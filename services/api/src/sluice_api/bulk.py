"""Work on many rows at once: page by page, and no longer than a request may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_api.caller import Caller
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError
from sluice_api.steering import note_operator
from sluice_api.turns import Turns
from sluice_core.adapters.db import audit
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.job import Job

#: Seconds after which no further page is begun: nothing in a request may take longer than two.
DEADLINE = 1.5
#: Rows of one transaction, which holds the database's only write lock meanwhile.
PAGE = 100
#: Beyond, it is not said how many remain.
MAX_COUNT = 100_000


@dataclass(frozen=True, slots=True)
class Page:
    """What one transaction did."""

    #: Rows that were looked at; fewer than asked for: these were the last.
    seen: int
    done: int
    #: Where the next page begins.
    cursor: str
    #: To be published.
    orders: Sequence[OutboxRow] = ()
    #: To be told of.
    jobs: Sequence[Job] = ()


#: (connection, cursor, rows at most) -> what was done.
DoPage = Callable[[sa.Connection, str, int], Page]


def selected(filter_: Any, what: str) -> dict[str, Any]:
    """The parts of a filter that were given, at least one.

    Raises:
        ProblemError: 422, everything would be meant without having been said.

    """
    given: dict[str, Any] = filter_.model_dump(exclude_none=True, mode="json")
    if not given or (given.get("all") and len(given) > 1):
        raise ProblemError(
            422,
            Code.INVALID_REQUEST,
            f'filter: name at least one thing that {what} must have, or {{"all": true}} alone.',
        )
    return given


def work_off(
    deps: Deps,
    caller: Caller,
    do_page: DoPage,
    *,
    action: str,
    given: dict[str, Any],
    first: str,
    limit: int,
    count_rest: Callable[[sa.Connection], int],
) -> dict[str, int]:
    """Do pages until nothing fits, `limit` is reached or time is up; the answer's body.

    Args:
        deps: stores.
        caller: whose trail is left; an operator's only.
        do_page: one transaction's work.
        action: for the trail.
        given: the filter, for the trail.
        first: cursor of the first page.
        limit: rows at most.
        count_rest: how many fit at the end.

    """
    until = time.monotonic() + DEADLINE
    done = refused = 0
    cursor = first
    entry: str | None = None
    turns = Turns()
    while done + refused < limit and time.monotonic() < until:
        size = min(PAGE, limit - done - refused)
        page, entry = deps.database.write(
            lambda c, at=cursor, n=size, e=entry: _noted(  # type: ignore[misc]  # bound now
                deps, caller, do_page(c, at, n), c, action=action, given=given, entry=e
            )
        )
        deps.publisher.send(page.orders, page.jobs)
        done, refused, cursor = done + page.done, refused + page.seen - page.done, page.cursor
        if page.seen < size:
            break
        turns.give()
    counts = {"done": done, "refused": refused}

    def finish(connection: sa.Connection) -> int:
        if entry is not None:
            audit.amend(connection, entry, {"filter": given, **counts})
        return count_rest(connection)

    remaining = deps.database.read(count_rest) if entry is None else deps.database.write(finish)
    return {**counts, "remaining": remaining}


def _noted(
    deps: Deps,
    caller: Caller,
    page: Page,
    connection: sa.Connection,
    *,
    action: str,
    given: dict[str, Any],
    entry: str | None,
) -> tuple[Page, str | None]:
    """The first page that does anything leaves the trail, in its own transaction."""
    if entry is None and page.done:
        entry = note_operator(connection, caller, action, now=deps.clock(), filter=given)
    return page, entry
