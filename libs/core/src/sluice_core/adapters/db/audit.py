"""Who did what and when, as far as operators are concerned; capped, the oldest go first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import audit
from sluice_core.adapters.ids import new_id

#: Rows kept.
CAP = 10_000
#: Name of whoever acts where no keys are needed.
ANYBODY = "anybody"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts."""

    name: str
    api_key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One action; `at` is Unix seconds."""

    id: str
    at: float
    api_key_id: str | None
    actor: str
    #: E.g. `queue.pause`.
    action: str
    #: A queue, a worker or an id; None for what was done to many.
    target: str | None
    detail: dict[str, Any] | None


def note(
    connection: sa.Connection,
    actor: Actor,
    action: str,
    *,
    now: float,
    target: str | None = None,
    detail: dict[str, Any] | None = None,
) -> str:
    """Keep one action, in the transaction that does it; returns the entry's id."""
    entry_id = new_id()
    connection.execute(
        sa.insert(audit).values(
            id=entry_id,
            at=now,
            api_key_id=actor.api_key_id,
            actor=actor.name[:128],
            action=action,
            target=None if target is None else target[:128],
            detail=detail,
        )
    )
    return entry_id


def amend(connection: sa.Connection, entry_id: str, detail: dict[str, Any]) -> None:
    """Say what came of an action that took several transactions."""
    connection.execute(sa.update(audit).where(audit.c.id == entry_id).values(detail=detail))


def list_page(
    connection: sa.Connection,
    *,
    before_id: str | None,
    limit: int,
    action: str | None = None,
    api_key_id: str | None = None,
) -> list[Entry]:
    """Newest first, keyset pages.

    Args:
        connection: to read from.
        before_id: last id of the page before.
        limit: rows of a page.
        action: only this one, or all whose name begins with it and a dot.
        api_key_id: only what this key did.

    """
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(audit.c.id < before_id)
    if action is not None:
        of_kind = audit.c.action.startswith(f"{action}.", autoescape=True)
        query = query.where(sa.or_(audit.c.action == action, of_kind))
    if api_key_id is not None:
        query = query.where(audit.c.api_key_id == api_key_id)
    return [
        Entry(r.id, r.at, r.api_key_id, r.actor, r.action, r.target, r.detail)
        for r in connection.execute(query)
    ]


def trim(connection: sa.Connection, *, cap: int = CAP) -> int:
    """Drop the oldest beyond the cap; returns how many."""
    newest_over = connection.execute(
        sa.select(audit.c.id).order_by(audit.c.id.desc()).offset(cap).limit(1)
    ).scalar()
    if newest_over is None:
        return 0
    return connection.execute(sa.delete(audit).where(audit.c.id <= newest_over)).rowcount
