"""Ways to size a pool: ours, the usual one by list length, and none."""

from __future__ import annotations

from sluice_cli.simulation.model import Pool, newest_first
from sluice_core.domain.scaling import Observation, Policy, State, begin, decide

#: Seconds from a mark until the worker has said that it is empty and its pod is taken away.
MARK_TAKES = 6


class Sluice:
    """Demand is what waits and what runs; only workers that are empty go."""

    name = "sluice"

    def __init__(self, policy: Policy, *, every: int = 5) -> None:
        self._policy = policy
        self._every = every
        self._state: State | None = None

    def turn(self, pool: Pool, now: int) -> None:
        # An empty pool is looked at every second.
        if now % self._every and (pool.workers or not pool.waiting):
            return
        marked = [w for w in pool.workers.values() if w.marked_at is not None]
        observed = Observation(
            demand=pool.waiting + pool.running,
            replicas=len(pool.workers),
            draining=len(marked),
            busy=pool.busy,
        )
        decision, self._state = decide(
            observed, self._state or begin(observed, now), self._policy, now
        )
        change = decision.open - observed.open
        if change > 0:
            back = sorted(marked, key=lambda w: w.job is None)[:change]
            for worker in back:
                pool.unmark(worker, now)
            pool.add(change - len(back), now)
            return
        free = [w for w in pool.workers.values() if w.marked_at is None]
        free.sort(key=lambda w: (w.job is not None, -w.created))
        for worker in free[:-change]:
            pool.mark(worker, now)
        room = len(pool.workers) - decision.replicas
        empty = [w for w in marked if w.job is None and now - (w.marked_at or 0) >= MARK_TAKES]
        for worker in empty[: max(0, room)]:
            pool.remove(worker, now)


class ListLength:
    """As KEDA does by the length of a Redis list: what runs is not seen, anybody may go."""

    name = "LLEN"

    def __init__(self, policy: Policy, *, every: int = 15) -> None:
        self._policy = policy
        self._every = every
        self._state: State | None = None

    def turn(self, pool: Pool, now: int) -> None:
        if now % self._every:
            return
        observed = Observation(demand=pool.waiting, replicas=len(pool.workers))
        decision, self._state = decide(
            observed, self._state or begin(observed, now), self._policy, now
        )
        pool.add(max(0, decision.open - len(pool.workers)), now)
        too_many = len(pool.workers) - decision.open
        for worker in newest_first(pool.workers.values())[: max(0, too_many)]:
            pool.remove(worker, now)


class Fixed:
    """Always the same number."""

    def __init__(self, count: int) -> None:
        self.name = f"fixed {count}"
        self._count = count

    def turn(self, pool: Pool, now: int) -> None:
        pool.add(self._count - len(pool.workers), now)
