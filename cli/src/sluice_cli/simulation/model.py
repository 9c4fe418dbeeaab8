"""One pool of one-slot workers, second by second."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: Losses of its worker after which a job is put aside: two beside others, one alone.
QUARANTINE = 3
#: Seconds until the loss of a worker is noticed.
NOTICE = 20


@dataclass(slots=True)
class Job:
    """One link."""

    arrives: int
    #: Seconds of work.
    seconds: int
    #: Brings its worker down instead of ending.
    poison: bool = False
    losses: int = 0
    began: int | None = None


@dataclass(slots=True)
class Worker:
    """One pod."""

    number: int
    created: int
    ready_at: int
    job: Job | None = None
    job_began: int = 0
    #: When it was told to take nothing more.
    marked_at: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to a pool."""

    name: str
    title: str
    jobs: Sequence[Job]
    #: Seconds after which the simulation ends, whatever is left.
    horizon: int
    maximum: int
    #: Workers of the strategy that never changes them.
    fixed: int
    #: (second, part of all workers) that are lost.
    losses: Sequence[tuple[int, float]] = ()


@dataclass(slots=True)
class Result:
    """What came of it."""

    scenario: str
    strategy: str
    done: int = 0
    put_aside: int = 0
    #: Jobs that did not end in time.
    left: int = 0
    #: Runs that were ended by taking their worker away.
    interrupted: int = 0
    #: Seconds of work that were done in vain.
    in_vain: int = 0
    pod_seconds: int = 0
    most: int = 0
    #: Second at which the last job was done.
    last: int = 0
    waits: list[int] = field(default_factory=list)
    #: (second, workers, waiting, running), once a minute or so.
    series: list[tuple[int, int, int, int]] = field(default_factory=list)

    def wait(self, part: float) -> int:
        """Seconds that this part of the jobs waited at most until they began."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


class Strategy(Protocol):
    """A way to size a pool."""

    name: str

    def turn(self, pool: Pool, now: int) -> None:
        """Called every second."""


class Pool:
    """The state of one simulation.

    Args:
        scenario: what happens.
        start_up: seconds from the wish for a worker until it takes work.

    """

    def __init__(self, scenario: Scenario, strategy: str, *, start_up: int) -> None:
        self.scenario = scenario
        self.workers: dict[int, Worker] = {}
        self.queue: deque[Job] = deque()
        self.result = Result(scenario.name, strategy)
        self._start_up = start_up
        self._numbers = 0
        self._missed = 0
        self._idle: set[int] = set()
        #: (second, worker, job) that end; stale ones are passed over.
        self._ends: list[tuple[int, int, int]] = []
        self._starts: list[tuple[int, int]] = []
        self._lost: list[tuple[int, int, Job]] = []

    # -- what a strategy sees and does ---------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self.queue)

    @property
    def running(self) -> int:
        """Claims, those of workers that are gone and not yet missed included."""
        return sum(w.job is not None for w in self.workers.values()) + len(self._lost)

    @property
    def busy(self) -> int:
        return sum(w.job is not None for w in self.workers.values())

    def add(self, count: int, now: int) -> None:
        """Ask for more workers."""
        for _ in range(count):
            self._numbers += 1
            worker = Worker(self._numbers, now, now + self._start_up)
            self.workers[worker.number] = worker
            heapq.heappush(self._starts, (worker.ready_at, worker.number))

    def mark(self, worker: Worker, now: int) -> None:
        """Give it nothing more."""
        worker.marked_at = now
        self._idle.discard(worker.number)

    def unmark(self, worker: Worker, now: int) -> None:
        """Give it work again."""
        worker.marked_at = None
        if worker.job is None and worker.ready_at <= now:
            self._idle.add(worker.number)

    def remove(self, worker: Worker, now: int) -> None:
        """Take it away; what it runs begins again elsewhere."""
        del self.workers[worker.number]
        self._idle.discard(worker.number)
        if worker.job is not None:
            self.result.interrupted += 1
            self.result.in_vain += now - worker.job_began
            self.queue.appendleft(worker.job)

    # -- the world -----------------------------------------------------------------------------

    def run(self, strategy: Strategy) -> Result:
        """Play the scenario to its end."""
        arrivals = deque(sorted(self.scenario.jobs, key=lambda job: job.arrives))
        losses = deque(sorted(self.scenario.losses))
        total = len(self.scenario.jobs)
        for now in range(self.scenario.horizon):
            while arrivals and arrivals[0].arrives <= now:
                self.queue.append(arrivals.popleft())
            if losses and losses[0][0] <= now:
                self._lose(losses.popleft()[1], now)
            self._end_and_begin(now)
            strategy.turn(self, now)
            self._count(now)
            if self.result.done + self.result.put_aside == total and not self.workers:
                break
        self.result.left = total - self.result.done - self.result.put_aside
        return self.result

    def _end_and_begin(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, number, began = heapq.heappop(self._ends)
            worker = self.workers.get(number)
            if worker is not None and worker.job is not None and worker.job_began == began:
                self._end(worker, worker.job, now)
        while self._starts and self._starts[0][0] <= now:
            _, number = heapq.heappop(self._starts)
            worker = self.workers.get(number)
            if worker is not None and worker.marked_at is None and worker.job is None:
                self._idle.add(number)
        while self._lost and self._lost[0][0] <= now:
            self.queue.append(heapq.heappop(self._lost)[2])
        while self._idle and self.queue:
            self._begin(self.workers[self._idle.pop()], self.queue.popleft(), now)

    def _begin(self, worker: Worker, job: Job, now: int) -> None:
        worker.job, worker.job_began = job, now
        if job.began is None:
            job.began = now
            self.result.waits.append(now - job.arrives)
        heapq.heappush(self._ends, (now + job.seconds, worker.number, now))

    def _end(self, worker: Worker, job: Job, now: int) -> None:
        worker.job = None
        if job.poison:
            self.result.in_vain += job.seconds
            self._crash(worker, job, now)
            return
        self.result.done += 1
        self.result.last = now
        if worker.marked_at is None:
            self._idle.add(worker.number)

    def _crash(self, worker: Worker, job: Job, now: int) -> None:
        """The job took its worker down: the pod starts again, the job is tried elsewhere."""
        worker.ready_at = now + self._start_up
        heapq.heappush(self._starts, (worker.ready_at, worker.number))
        job.losses += 1
        if job.losses >= QUARANTINE:
            self.result.put_aside += 1
        else:
            self._miss(job, now)

    def _miss(self, job: Job, now: int) -> None:
        """A job whose worker is gone comes back once that was noticed."""
        self._missed += 1
        heapq.heappush(self._lost, (now + NOTICE, self._missed, job))

    def _lose(self, part: float, now: int) -> None:
        """Workers vanish with their machine; others are started in their place."""
        gone = list(self.workers.values())[: round(part * len(self.workers))]
        for worker in gone:
            del self.workers[worker.number]
            self._idle.discard(worker.number)
            if worker.job is not None:
                self.result.in_vain += now - worker.job_began
                self._miss(worker.job, now)
        self.add(sum(worker.marked_at is None for worker in gone), now)

    def _count(self, now: int) -> None:
        count = len(self.workers)
        self.result.pod_seconds += count
        self.result.most = max(self.result.most, count)
        if now % max(1, self.scenario.horizon // 1_000) == 0:
            self.result.series.append((now, count, self.waiting, self.busy))


def newest_first(workers: Iterable[Worker]) -> list[Worker]:
    """As a ReplicaSet takes pods that cost the same: those not ready, then the newest."""
    return sorted(workers, key=lambda worker: -worker.created)
