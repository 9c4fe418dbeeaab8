"""What there is to do and who does it, for all pools at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db import liveness
from sluice_core.adapters.db.engine import read
from sluice_core.domain.standby import pod_of
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.demand import Demand, demand_of
from sluice_core.runtime.figures import QueueFigures, read_queues, reader


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of both stores."""

    figures: Mapping[str, QueueFigures]
    #: Pod -> runs that it holds.
    running: Mapping[str, int]

    def demand(self, queues: Sequence[str]) -> Demand:
        """Of one pool."""
        return demand_of(self.figures, queues)


def take_reading(
    broker: SluiceBroker, engine: sa.Engine, queues: Sequence[str], *, now: float
) -> Reading:
    """Ask both stores.

    Args:
        broker: to ask Redis.
        engine: to ask the database.
        queues: of all pools.
        now: Unix seconds.

    Raises:
        BrokerAwayError: Redis does not answer.
        StoreAwayError: the database does not answer.

    """
    figures = read_queues(broker, reader(engine), now=now, queues=queues)
    with read(engine) as connection:
        runs = liveness.open_attempts(connection)
    return Reading(figures=figures, running=Counter(pod_of(run.worker) for run in runs))
