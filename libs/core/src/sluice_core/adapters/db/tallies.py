"""Counters and histograms of the installation, as true as the state that they count.

What happened is noted in the transaction in which it did, so nothing is counted twice and nothing
that was not committed. Notes are only appended: a counter that all runs update would make them wait
for each other. The scheduler adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from sluice_core.adapters.db import notes
from sluice_core.adapters.db.schema import tallies, tally_events
from sluice_core.adapters.db.upsert import raise_by
from sluice_core.domain.tallies import Cells, Tally, cells

#: Notes that one transaction adds up.
BATCH = 2_000


def note(connection: sa.Connection, found: Iterable[Tally]) -> None:
    """Count what this transaction does, if it is committed."""
    rows = [{"metric": t.metric, "labels": t.labels_text, "value": t.value} for t in found]
    if rows:
        connection.execute(sa.insert(tally_events), rows)


def has_events(connection: sa.Connection) -> bool:
    """Whether `fold` has anything to do; takes no write lock."""
    return notes.has_any(connection, tally_events)


def fold(connection: sa.Connection, *, limit: int = BATCH) -> int:
    """Add noted events to the tallies; any number of processes may do so at once.

    Returns:
        how many; `limit` when there may be more.

    """
    taken = notes.take_oldest(connection, tally_events, limit=limit)
    sums: Cells = {}
    for row in taken:
        for key, value in cells(row.metric, row.labels, row.value).items():
            sums[key] = sums.get(key, 0.0) + value
    amounts = [
        {"series": series, "labels": labels, "value": value}
        for (series, labels), value in sums.items()
    ]
    raise_by(connection, tallies.c.value, amounts)
    return len(taken)


def read(connection: sa.Connection) -> Cells:
    """Every series; some hundred at most, since labels come from fixed sets."""
    return {(row.series, row.labels): row.value for row in connection.execute(sa.select(tallies))}
