"""Messages between the database and the workers: dramatiq on Redis, one consumer per process."""

from sluice_core.runtime.broker.actors import declare_actor
from sluice_core.runtime.broker.broker import Outgoing, QueueStats, SluiceBroker
from sluice_core.runtime.broker.consumer import FetchRules
from sluice_core.runtime.broker.worker import Health, StageWorker

__all__ = [
    "FetchRules",
    "Health",
    "Outgoing",
    "QueueStats",
    "SluiceBroker",
    "StageWorker",
    "declare_actor",
]
