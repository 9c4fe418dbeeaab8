"""What is remembered of the lists that are read again and again: each entry becomes a job once."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from sluice_core.adapters.db.schema import schedules, subscription_entries
from sluice_core.adapters.db.upsert import insert_or_ignore


def admit(
    connection: sa.Connection, subscription_id: str, keys: Collection[str], *, now: float
) -> set[str]:
    """Remember entries, in the transaction that makes their jobs.

    Args:
        connection: of that transaction.
        subscription_id: of the schedule.
        keys: hashes of entries that stand in the list now.
        now: Unix seconds.

    Returns:
        those that are to become jobs: not seen before, and not there from the start unless asked
        for. None of a subscription that was deleted meanwhile.

    """
    query = sa.select(schedules.c.backfill, schedules.c.baseline_done).where(
        schedules.c.id == subscription_id
    )
    subscription = connection.execute(query).first()
    if subscription is None or not keys:
        return set()
    connection.execute(
        sa.update(subscription_entries)
        .where(
            subscription_entries.c.schedule_id == subscription_id,
            subscription_entries.c.entry_key.in_(keys),
        )
        .values(seen_at=now)
    )
    insert = insert_or_ignore(connection, subscription_entries).returning(
        subscription_entries.c.entry_key
    )
    # In one order for all: two writers that meet the same keys in others would deadlock.
    rows = [
        {"schedule_id": subscription_id, "entry_key": key, "seen_at": now} for key in sorted(keys)
    ]
    new = set(connection.execute(insert, rows).scalars())
    return new if subscription.backfill or subscription.baseline_done else set()


def checked(connection: sa.Connection, subscription_id: str) -> None:
    """The list was read to its end: from now on what is not known is new."""
    connection.execute(
        sa.update(schedules).where(schedules.c.id == subscription_id).values(baseline_done=True)
    )


def counts(connection: sa.Connection, subscription_ids: Collection[str]) -> dict[str, int]:
    """How many entries are remembered of each."""
    query = (
        sa.select(subscription_entries.c.schedule_id, sa.func.count())
        .where(subscription_entries.c.schedule_id.in_(subscription_ids))
        .group_by(subscription_entries.c.schedule_id)
    )
    return {row.schedule_id: row[1] for row in connection.execute(query)}


def purge(connection: sa.Connection, *, older_than: float) -> int:
    """Forget entries that left their list long ago; returns how many.

    Only of lists that were read since: one that nobody could read is no list without entries. Also
    what a look that was under way wrote of a subscription that was deleted.
    """
    other = subscription_entries.alias("other")
    newest = (
        sa.select(sa.func.max(other.c.seen_at))
        .where(other.c.schedule_id == subscription_entries.c.schedule_id)
        .scalar_subquery()
    )
    left = sa.and_(subscription_entries.c.seen_at <= older_than, newest > older_than)
    ownerless = ~sa.exists().where(schedules.c.id == subscription_entries.c.schedule_id)
    old = sa.delete(subscription_entries).where(sa.or_(left, ownerless))
    return connection.execute(old).rowcount
