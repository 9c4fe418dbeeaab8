"""Many links in one request: each line stands or falls by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import ValidationError

from sluice_api.caller import Caller
from sluice_api.deps import Deps
from sluice_api.models import MAX_BATCH, JobRequest
from sluice_api.prefix import of_request
from sluice_api.problems import Code, ProblemError, of_validation
from sluice_api.submit import Accepted, LostRaceError, Order, check, place, place_many
from sluice_api.turns import Turns
from sluice_core.adapters.db import idempotency

_T = TypeVar("_T")

#: Jobs written in one transaction: it holds the database's only write lock meanwhile.
CHUNK = 500
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a batch and what became of it."""

    number: int
    outcome: Order | Accepted | ProblemError

    def view(self, prefix: str) -> dict[str, Any]:
        """What its client is told; `prefix`: see `of_request`."""
        if isinstance(self.outcome, Accepted):
            job = self.outcome.job
            return {
                "line": self.number,
                "id": job.id,
                "status": job.status.value,
                "existing": self.outcome.existing or self.outcome.replayed,
                "links": {"self": f"{prefix}/v1/jobs/{job.id}"},
            }
        if isinstance(self.outcome, ProblemError):
            problem = {"code": str(self.outcome.code), "message": self.outcome.detail}
            hint = self.outcome.extra.get("help")
            problem |= {"help": hint} if hint else {}
            return {"line": self.number, "error": problem}
        raise TypeError("the line was not placed")


def read_lines(
    deps: Deps, entries: Iterable[tuple[int, Any]], *, api_key_id: str | None, key: str | None
) -> list[Line]:
    """Check every line.

    Args:
        deps: presets and address rules.
        entries: (number, decoded line or the problem with it).
        api_key_id: submitter.
        key: value of the Idempotency-Key header; each line gets one of its own from it.

    Raises:
        ProblemError: there are too many lines, or none.

    """
    lines: list[Line] = []
    turns = Turns()
    for number, entry in entries:
        if len(lines) == MAX_BATCH:
            raise ProblemError(422, Code.INVALID_REQUEST, f"A batch has at most {MAX_BATCH} links.")
        lines.append(Line(number, _outcome(deps, number, entry, api_key_id, key)))
        turns.give()
    if not lines:
        raise ProblemError(422, Code.INVALID_REQUEST, "The batch is empty.")
    return lines


def _outcome(
    deps: Deps, number: int, entry: Any, api_key_id: str | None, key: str | None
) -> Order | ProblemError:
    if isinstance(entry, ProblemError):
        return entry
    try:
        body = JobRequest.model_validate({"url": entry} if isinstance(entry, str) else entry)
        order = check(body, presets=deps.presets, addresses=deps.addresses, api_key_id=api_key_id)
    except ValidationError as exc:
        return of_validation(exc)
    except ProblemError as exc:
        return exc
    if key is None:
        return order
    return order.with_key(idempotency.key_of(api_key_id, key, number))


def place_lines(deps: Deps, caller: Caller, lines: Sequence[Line]) -> list[Line]:
    """Write the checked lines, chunk by chunk, and send their messages."""
    placed: dict[int, Accepted | ProblemError] = {}
    orders = [(line.number, line.outcome) for line in lines if isinstance(line.outcome, Order)]
    for chunk in _chunks(orders, CHUNK):
        try:
            outcomes = _place_chunk(deps, caller, [order for _, order in chunk])
        except ProblemError as exc:
            outcomes = [exc] * len(chunk)
        placed.update(zip((number for number, _ in chunk), outcomes, strict=True))
        new = [o for o in outcomes if isinstance(o, Accepted) and o.message]
        deps.publisher.send([o.message for o in new if o.message], [o.job for o in new])
    return [Line(line.number, placed.get(line.number, line.outcome)) for line in lines]


def views_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """What the client is told of each line."""
    prefix, turns = of_request(), Turns()
    views = []
    for line in lines:
        views.append(line.view(prefix))
        turns.give()
    return views


def _place_chunk(
    deps: Deps, caller: Caller, orders: Sequence[Order]
) -> list[Accepted | ProblemError]:
    now = deps.clock()
    retention = deps.settings.jobs.retention_files

    def work(connection: sa.Connection) -> list[Accepted | ProblemError]:
        placed: list[Accepted | ProblemError]
        if all(order.idempotency_key is None for order in orders):
            placed = [*place_many(connection, orders, now=now, retention=retention)]
        else:
            placed = [_place_one(connection, order, now, retention) for order in orders]
        deps.backlog.check_room(connection, placed, caller.quota)
        return placed

    return write_until_won(deps, work)


def _place_one(
    connection: sa.Connection, order: Order, now: float, retention: float
) -> Accepted | ProblemError:
    try:
        return place(connection, order, now=now, retention=retention)
    except ProblemError as exc:
        return exc


def write_until_won(deps: Deps, work: Callable[[sa.Connection], _T]) -> _T:
    """Run a transaction again while it loses against others with the same Idempotency-Key.

    Raises:
        LostRaceError: it lost every time.

    """
    for _ in range(_ROUNDS - 1):
        try:
            return deps.database.write(work)
        except LostRaceError:
            continue
    return deps.database.write(work)


def _chunks(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk
