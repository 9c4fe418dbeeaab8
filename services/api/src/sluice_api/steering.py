"""What operators do, with the trail that it leaves."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import structlog

from sluice_api.caller import Caller
from sluice_api.deps import Deps
from sluice_core.adapters.db import audit, steering
from sluice_core.domain.errors import BrokerAwayError

log = structlog.get_logger(__name__)


def note(
    connection: sa.Connection,
    caller: Caller,
    action: str,
    *,
    now: float,
    target: str | None = None,
    **detail: Any,
) -> str:
    """Leave a row of who did what, in the transaction that does it; returns its id."""
    actor = audit.Actor(caller.name, caller.api_key_id)
    return audit.note(connection, actor, action, now=now, target=target, detail=detail or None)


def note_operator(
    connection: sa.Connection,
    caller: Caller,
    action: str,
    *,
    now: float,
    target: str | None = None,
    **detail: Any,
) -> str | None:
    """As `note`, of operators only: who moves what is their own must not fill the trail."""
    if not caller.sees_all:
        return None
    return note(connection, caller, action, now=now, target=target, **detail)


def pause(deps: Deps, caller: Caller, queue: str) -> bool:
    """Hand out nothing of a queue; False when it was paused already."""
    now = deps.clock()

    def work(connection: sa.Connection) -> bool:
        changed = steering.pause(connection, queue, by=caller.name, now=now)
        if changed:
            note(connection, caller, "queue.pause", now=now, target=queue)
        return changed

    changed = deps.database.write(work)
    _tell(deps, queue, paused=True)
    return changed


def resume(deps: Deps, caller: Caller, queue: str) -> bool:
    """Hand out again; False when it was not paused."""
    now = deps.clock()

    def work(connection: sa.Connection) -> bool:
        changed = steering.resume(connection, queue)
        if changed:
            note(connection, caller, "queue.resume", now=now, target=queue)
        return changed

    changed = deps.database.write(work)
    _tell(deps, queue, paused=False)
    return changed


def _tell(deps: Deps, queue: str, *, paused: bool) -> None:
    """Redis too, at once; a scheduler does it when this fails."""
    try:
        if paused:
            deps.broker.pause(queue)
        else:
            deps.broker.resume(queue)
    except BrokerAwayError as exc:
        log.warning("pause_not_told", queue=queue, error=str(exc))


def drain(deps: Deps, caller: Caller, worker: str) -> bool:
    """Ask a worker to end when it is idle; False when it was asked before."""
    now = deps.clock()

    def work(connection: sa.Connection) -> bool:
        changed = steering.ask_to_drain(connection, worker, now=now)
        if changed:
            note(connection, caller, "worker.drain", now=now, target=worker)
        return changed

    return deps.database.write(work)
