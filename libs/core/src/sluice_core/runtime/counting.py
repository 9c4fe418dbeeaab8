"""Counts what happens outside of any transaction of its own."""

from __future__ import annotations

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import tallies
from sluice_core.adapters.db.engine import write
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.tallies import Tally

log = structlog.get_logger(__name__)


def count(engine: sa.Engine, metric: str, value: float = 1.0, **labels: str) -> None:
    """Add to a counter of the installation; lost, with a line, while the database is away."""
    try:
        with write(engine) as connection:
            tallies.note(connection, [Tally(metric, labels, value)])
    except StoreAwayError as exc:
        log.info("count_lost", metric=metric, value=value, reason=str(exc))
