"""Names in the broker's own database; the layout of lists, hashes and ack sets is dramatiq's."""

from __future__ import annotations

from sluice_core.domain.lanes import CONSUMERS, queues_of

#: dramatiq's namespace, and a contract with dashboards and KEDA triggers.
NAMESPACE = "dramatiq"

#: Every queue that there can be.
ALL_QUEUES = tuple(queue for actor in CONSUMERS for queue in queues_of(actor))

#: Set of queues of which nothing is handed out.
PAUSED = f"{NAMESPACE}:__paused__"


def messages_key(queue: str) -> str:
    """Hash id -> message, of those that wait and those with a worker."""
    return f"{NAMESPACE}:{queue}.msgs"


def wake_key(queue: str) -> str:
    """List of tokens: idle workers of this queue block on it."""
    return f"{NAMESPACE}:__wake__.{queue}"


def private_wake_key(worker_id: str) -> str:
    """List of tokens for one worker alone."""
    return f"{NAMESPACE}:__wake__.@{worker_id}"
