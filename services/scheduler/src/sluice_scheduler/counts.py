"""Adds up what all processes noted, so that whoever reads it has little to add."""

from __future__ import annotations

import sqlalchemy as sa

from sluice_core.adapters.db import job_counts, tallies
from sluice_core.adapters.db.engine import read, write


def add_up(engine: sa.Engine) -> None:
    """Fold changes of job counts, and of counters and histograms."""
    with read(engine) as connection:
        changed, noted = job_counts.has_changes(connection), tallies.has_events(connection)
    while changed:
        with write(engine) as connection:
            changed = job_counts.fold(connection) == job_counts.BATCH
    while noted:
        with write(engine) as connection:
            noted = tallies.fold(connection) == tallies.BATCH
