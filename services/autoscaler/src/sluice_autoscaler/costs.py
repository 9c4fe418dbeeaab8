"""Deletion costs, kept true for whoever else reduces a pool: a person, an HPA, KEDA.

Each is a write to the API server, so that short runs must not show at once: what becomes busy does
soon, what becomes idle a while later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sluice_autoscaler.cluster import DELETION_COST, Pod

#: Cost of one run.
PER_RUN = 100
#: Writes in one turn of a pool; the rest comes with the next.
MAX_WRITES = 20
#: Seconds after a write until a pod may be shown busy, and until it may be shown otherwise.
SOON, LATER = 2.0, 10.0


class Annotates(Protocol):
    """Where pods are annotated."""

    def annotate(self, pod: str, annotations: dict[str, str | None]) -> None: ...


class Costs:
    """Deletion costs of one pool's pods that are not marked."""

    def __init__(self, cluster: Annotates) -> None:
        self._cluster = cluster
        self._written: dict[str, float] = {}

    def keep(self, pods: Sequence[Pod], running: Mapping[str, int], now: float) -> None:
        """Write what has changed.

        Args:
            pods: of the pool, as they are.
            running: pod -> runs that it holds.
            now: monotonic seconds.

        Raises:
            ClusterError: a write failed.

        """
        names = {pod.name for pod in pods}
        self._written = {name: at for name, at in self._written.items() if name in names}
        changed = [
            (pod, cost)
            for pod in pods
            if not pod.mark and (cost := PER_RUN * running.get(pod.name, 0)) != pod.cost
        ]
        # What has become busy first: that is whom a wrong cost would hurt.
        changed.sort(key=lambda change: -(change[1] - change[0].cost))
        writes = 0
        for pod, cost in changed:
            wait = SOON if pod.cost <= 0 < cost else LATER
            if writes < MAX_WRITES and now - self._written.get(pod.name, float("-inf")) >= wait:
                self._cluster.annotate(pod.name, {DELETION_COST: str(cost) if cost else None})
                self._written[pod.name] = now
                writes += 1
