"""One pool: looked at, decided on, and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from sluice_autoscaler import victims
from sluice_autoscaler.cluster import DELETION_COST, STANDBY, Pod, Workload
from sluice_autoscaler.config import PoolConfig
from sluice_autoscaler.costs import Costs
from sluice_autoscaler.marks import Marks
from sluice_autoscaler.reading import Reading
from sluice_core.adapters.metrics import AutoscalerMetrics
from sluice_core.domain.scaling import Decision, Observation, State, begin, decide

log = structlog.get_logger(__name__)

#: Seconds between looks at a pool in which nothing seems to change.
LOOK_EVERY = 5.0
#: Seconds between looks at a pool with marked pods.
LOOK_AT_MARKED = 1.0
#: Deletion cost of a pod that may go.
READY_TO_GO = -1000


class Cluster(Protocol):
    """What a pool asks of Kubernetes; see `sluice_autoscaler.kube.Kube`."""

    def workload(self, name: str) -> Workload: ...

    def pods(self, selector: str) -> list[Pod]: ...

    def set_replicas(self, workload: Workload, replicas: int) -> None: ...

    def annotate(self, pod: str, annotations: dict[str, str | None]) -> None: ...


@dataclass(slots=True)
class _Look:
    """What was seen in one turn, kept up to date while it is changed."""

    workload: Workload
    pods: dict[str, Pod]
    running: Mapping[str, int]

    @property
    def marked(self) -> list[str]:
        return [name for name, pod in self.pods.items() if pod.mark]

    @property
    def busy(self) -> int:
        return sum(self.running.get(name, 0) > 0 for name in self.pods)


class Pool:
    """A Deployment of workers and its rules.

    Args:
        name: of the pool, as metrics show it.
        config: its rules.
        cluster: where it is.
        marks: of this pool alone.
        metrics: told what is decided.
        drains: false takes any pods away, whether they run something or not.

    """

    def __init__(
        self,
        name: str,
        config: PoolConfig,
        *,
        cluster: Cluster,
        marks: Marks,
        metrics: AutoscalerMetrics,
        drains: bool = True,
    ) -> None:
        self.name = name
        self.config = config
        self._policy = config.policy
        self._cluster = cluster
        self._marks = marks
        self._metrics = metrics
        self._drains = drains
        self._costs = Costs(cluster)
        self._state: State | None = None
        self._seen: Observation | None = None
        self._next_look = 0.0

    def turn(self, reading: Reading | None, now: float) -> None:
        """Look, decide and act, if it is time to.

        Args:
            reading: what there is to do; None when it could not be read.
            now: monotonic seconds.

        Raises:
            ClusterError: Kubernetes did not do what it was asked; what was done stays.
            BrokerAwayError: Redis did not answer.

        """
        if reading is None:
            self._hold(now)
        elif now >= self._next_look or self._wants_more(reading):
            # Set before the work: a failing pool is tried again no more often than others.
            self._next_look = now + LOOK_AT_MARKED
            self._look(reading, now)

    def reset(self) -> None:
        """Forget what was seen: somebody else leads."""
        self._state = self._seen = None
        self._next_look = 0.0

    def _hold(self, now: float) -> None:
        """A failed reading moves nothing, and is remembered as what was there."""
        if self._seen is None or not self.config.autoscaling.enabled:
            return
        seen = replace(self._seen, demand=None)
        decision, self._state = decide(seen, self._state or begin(seen, now), self._policy, now)
        self._tell(decision, seen)

    def _wants_more(self, reading: Reading) -> bool:
        """Whether there is more to do than the pool can be expected to know."""
        if self._seen is None:
            return True
        if self._seen.held or self._seen.paused is not None:
            return False
        if self._seen.open >= self._policy.maximum or not self.config.autoscaling.enabled:
            return False
        demand = reading.demand(self.config.queues).total
        return demand > max(self._policy.activation, self._seen.open * self._policy.target)

    def _look(self, reading: Reading, now: float) -> None:
        workload = self._cluster.workload(self.config.deployment)
        pods = {pod.name: pod for pod in self._cluster.pods(workload.selector)}
        look = _Look(workload, pods, reading.running)
        if self.config.autoscaling.enabled and self._drains:
            self._renew_marks(look, now)
        else:
            # An earlier leader had other rules.
            self._take_back(look, len(look.marked))
        for pod in victims.leaving(pods.values(), workload.replicas):
            del look.pods[pod.name]
        if self.config.autoscaling.enabled:
            self._scale(look, reading, now)
        if self._drains:
            self._costs.keep(list(look.pods.values()), look.running, now)
        if not look.marked:
            self._next_look = now + LOOK_EVERY

    def _scale(self, look: _Look, reading: Reading, now: float) -> None:
        observed = Observation(
            demand=reading.demand(self.config.queues).total,
            replicas=look.workload.replicas,
            draining=len(look.marked),
            busy=look.busy,
            paused=look.workload.paused,
            held=look.workload.held,
        )
        before = self._state or begin(observed, now)
        decision, after = decide(observed, before, self._policy, now)
        self._seen = observed
        # Moves count once they are made.
        self._state = replace(after, moves=before.moves)
        self._tell(decision, observed)
        self._carry_out(decision, observed, look, now)
        self._state = after

    def _tell(self, decision: Decision, observed: Observation) -> None:
        self._metrics.decided(self.name, decision.reason.value)
        self._metrics.replicas(
            self.name,
            desired=decision.replicas,
            current=observed.replicas,
            busy=observed.busy,
        )

    def _carry_out(
        self, decision: Decision, observed: Observation, look: _Look, now: float
    ) -> None:
        if not self._drains:
            self._set_replicas(look, decision.open, decision.reason.value)
        elif decision.open > observed.open:
            back = self._take_back(look, decision.open - observed.open)
            wanted = look.workload.replicas + decision.open - observed.open - back
            self._set_replicas(look, wanted, decision.reason.value)
        elif not look.workload.rolling:
            missing = self._mark(look, observed.open - decision.open, now)
            self._reduce(look, decision, missing)

    def _set_replicas(self, look: _Look, replicas: int, why: str) -> None:
        before = look.workload.replicas
        if replicas == before:
            return
        self._cluster.set_replicas(look.workload, replicas)
        log.info("scaled", pool=self.name, replicas=replicas, before=before, reason=why)

    # -- marks -------------------------------------------------------------------------------------

    def _renew_marks(self, look: _Look, now: float) -> None:
        """Tell workers of marked pods again, and take over what an earlier leader marked."""
        # Whose annotation somebody took away is free again.
        self._marks.withdraw(self._marks.known().intersection(look.pods) - set(look.marked))
        self._marks.forget(self._marks.known() - look.pods.keys())
        self._set_marks(look, look.marked, now)

    def _set_marks(self, look: _Look, pods: Sequence[str], now: float) -> None:
        named: dict[str, str] = {}
        for pod in pods:
            shown = look.pods[pod].mark
            named[pod] = self._marks.name_for(pod, shown, now)
            if named[pod] != shown:
                self._annotate(look, pod, {STANDBY: named[pod]})
        self._marks.renew(named, now)

    def _mark(self, look: _Look, count: int, now: float) -> int:
        """Mark so many; returns how many of them are no pods yet, and need no mark."""
        missing = min(count, max(0, look.workload.replicas - len(look.pods)))
        free = [pod for pod in look.pods.values() if not pod.mark]
        chosen = [pod.name for pod in victims.choose(free, look.running, count - missing)]
        self._set_marks(look, chosen, now)
        if chosen:
            log.info("marked", pool=self.name, pods=chosen)
        return missing

    def _take_back(self, look: _Look, count: int) -> int:
        """Give up to so many marks up, of pods that run something first; returns how many."""
        pods = sorted(look.marked, key=lambda name: -look.running.get(name, 0))[:count]
        self._marks.withdraw(pods)
        for pod in pods:
            self._annotate(look, pod, {STANDBY: None, DELETION_COST: None})
        if pods:
            log.info("marks_given_up", pool=self.name, pods=pods)
        return len(pods)

    def _reduce(self, look: _Look, decision: Decision, missing: int) -> None:
        """Take away what may go, as far as a ReplicaSet is sure to take just that.

        A cost that was written now counts from the next turn on: whoever picks the pods must have
        heard of it first.
        """
        safe = {name for name in self._safe(look) if self._is_priced(look, name)}
        replicas = look.workload.replicas
        wanted = min(len(safe) + missing, replicas - decision.replicas)
        count = victims.most_to_remove(list(look.pods.values()), replicas, wanted, safe)
        if count:
            self._set_replicas(look, replicas - count, "drained")

    def _is_priced(self, look: _Look, pod: str) -> bool:
        """Whether the pod showed the cost of one that may go; gives it that cost otherwise."""
        if look.pods[pod].cost == READY_TO_GO:
            return True
        self._annotate(look, pod, {DELETION_COST: str(READY_TO_GO)})
        return False

    def _safe(self, look: _Look) -> frozenset[str]:
        """Marked pods that run nothing and will begin nothing."""
        marked = look.marked
        never_began = {
            name for name in marked if not look.pods[name].alive and not look.running.get(name)
        }
        return self._marks.answered(marked) | never_began

    def _annotate(self, look: _Look, pod: str, annotations: dict[str, str | None]) -> None:
        self._cluster.annotate(pod, annotations)
        merged = {**look.pods[pod].annotations, **annotations}
        look.pods[pod] = replace(
            look.pods[pod], annotations={k: v for k, v in merged.items() if v is not None}
        )
