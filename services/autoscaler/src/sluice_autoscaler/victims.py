"""Which pods go: whom we choose, and whom a ReplicaSet would take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sluice_autoscaler.cluster import Pod

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def choose(pods: Sequence[Pod], running: Mapping[str, int], count: int) -> list[Pod]:
    """Whom to mark: idle before busy, not ready before ready, then the emptiest and newest.

    Args:
        pods: that are not marked yet.
        running: pod -> runs that it holds.
        count: how many.

    """

    def rank(pod: Pod) -> tuple[bool, bool, int, float, str]:
        runs = running.get(pod.name, 0)
        return (runs > 0, pod.ready, runs, -pod.created, pod.name)

    return sorted(pods, key=rank)[: max(0, count)]


def removal_order(pods: Collection[Pod]) -> list[Pod]:
    """As a ReplicaSet takes them when it shrinks.

    What it also looks at, how many of its pods share a node, comes after the cost, and so decides
    only between pods that we count alike. Source: ActivePodsWithRanks in pkg/controller.
    """

    def rank(pod: Pod) -> tuple[bool, int, bool, int, float, int, float]:
        phase = _PHASES.get(pod.phase, 1)
        return (
            pod.assigned,
            phase,
            pod.ready,
            pod.cost,
            -pod.ready_at,
            -pod.restarts,
            -pod.created,
        )

    return sorted(pods, key=rank)


def leaving(pods: Collection[Pod], replicas: int) -> list[Pod]:
    """Pods beyond the number that is asked for: they are to end, whether they know it or not.

    To count them, or to give their marks and costs up, would send others in their place.
    """
    return removal_order(pods)[: max(0, len(pods) - replicas)]


def most_to_remove(pods: Sequence[Pod], replicas: int, wanted: int, safe: Collection[str]) -> int:
    """How many replicas can go so that a ReplicaSet takes none but safe pods.

    Args:
        pods: all that it may choose from, with the costs that they have.
        replicas: asked for now; may be more than there are pods.
        wanted: how many should go.
        safe: names of pods that may go.

    """
    order = removal_order(pods)
    for count in range(wanted, 0, -1):
        taken = max(0, len(order) - (replicas - count))
        # Pods that only tie with the last one may be taken in its place.
        if all(pod.name in safe for pod in order[:taken]) and not _ties(order, taken, safe):
            return count
    return 0


def _ties(order: Sequence[Pod], taken: int, safe: Collection[str]) -> bool:
    """Whether an unsafe pod is told from the last one taken by no more than times and nodes."""
    if not taken:
        return False
    last = order[taken - 1]
    return any(_coarse(pod) == _coarse(last) for pod in order[taken:] if pod.name not in safe)


def _coarse(pod: Pod) -> tuple[bool, int, bool, int]:
    return (pod.assigned, _PHASES.get(pod.phase, 1), pod.ready, pod.cost)
