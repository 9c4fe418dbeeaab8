"""Counters and histograms of the installation, as true as the state that they count.

What happened is noted in the transaction in which it did, so nothing is counted twice and nothing
that was not committed. Notes are only appended: a counter that all runs update would make them wait
for each other. The scheduler adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from sluice_core.adapters.db.schema import tallies, tally_events
from sluice_core.adapters.db.upsert import insert_into
from sluice_core.domain.tallies import Cells, Tally, cells

#: Notes that one transaction adds up.
BATCH = 2_000


def note(connection: sa.Connection, found: Iterable[Tally]) -> None:
    """Count what this transaction does, if it is committed."""
    rows = [{"metric": t.metric, "labels": t.labels_text, "value": t.value} for t in found]
    if rows:
        connection.execute(sa.insert(tally_events), rows)


def pending(connection: sa.Connection) -> bool:
    """Whether there is anything to add up."""
    return connection.execute(sa.select(tally_events.c.id).limit(1)).first() is not None


def fold(connection: sa.Connection, *, limit: int = BATCH) -> int:
    """Add noted events to the tallies; any number of processes may do so at once.

    Returns:
        how many; `limit` when there may be more.

    """
    oldest = (
        sa.select(tally_events.c.id)
        .order_by(tally_events.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = connection.execute(
        sa.delete(tally_events).where(tally_events.c.id.in_(oldest)).returning(tally_events)
    ).all()
    sums: Cells = {}
    for row in taken:
        for key, value in cells(row.metric, row.labels, row.value).items():
            sums[key] = sums.get(key, 0.0) + value
    _add(connection, sums)
    return len(taken)


def _add(connection: sa.Connection, sums: Cells) -> None:
    if not sums:
        return
    insert = insert_into(connection, tallies)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[tallies.c.series, tallies.c.labels],
            set_={"value": tallies.c.value + insert.excluded.value},
        ),
        # In one order: two who add at once would else wait for each other in a ring.
        [
            {"series": series, "labels": labels, "value": value}
            for (series, labels), value in sorted(sums.items())
        ],
    )


def read(connection: sa.Connection) -> Cells:
    """Every series; some hundred at most, since labels come from fixed sets."""
    return {(row.series, row.labels): row.value for row in connection.execute(sa.select(tallies))}
