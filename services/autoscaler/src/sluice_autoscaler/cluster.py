"""What the autoscaler knows of Kubernetes objects, and what can go wrong with them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

#: Kubernetes' own: a ReplicaSet that shrinks takes the lowest first; without it a pod has 0.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
#: A number on a Deployment: that many replicas, until it is taken away.
PAUSED_REPLICAS = "sluice.dev/paused-replicas"
#: `true` on a Deployment: as many as there are, until it is taken away.
HOLD = "sluice.dev/hold"
#: On a pod: the name of its mark, see `sluice_core.domain.standby`.
STANDBY = "sluice.dev/standby"


class Fault(StrEnum):
    """Why the cluster did not do what it was asked; label values of a metric."""

    #: Somebody else wrote first.
    CONFLICT = "conflict"
    #: Too many requests.
    THROTTLED = "throttled"
    #: A right is missing.
    DENIED = "denied"
    #: There is no such object.
    MISSING = "missing"
    #: No answer in time.
    TIMEOUT = "timeout"
    #: No connection.
    UNREACHABLE = "unreachable"
    #: The API server has a fault of its own.
    SERVER_ERROR = "server_error"
    #: It does not take what it was given, or answers what nobody understands.
    REFUSED = "refused"


class ClusterError(Exception):
    """The cluster did not do what it was asked.

    Args:
        fault: what kind.
        message: one sentence.
        retry_after: seconds that it asked to wait.

    """

    def __init__(self, fault: Fault, message: str, *, retry_after: float | None = None) -> None:
        self.fault = fault
        self.retry_after = retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment."""

    name: str
    #: As read: a write with an older one is refused.
    version: str
    replicas: int
    #: Label selector of its pods.
    selector: str
    #: Pods of an older template are still there: who shrinks it now can't tell which pods go.
    rolling: bool
    annotations: dict[str, str]

    @property
    def paused(self) -> int | None:
        """The number of replicas that a person named; None without one, or without a number."""
        text = self.annotations.get(PAUSED_REPLICAS, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def held(self) -> bool:
        """Whether a person wants everything to stay; a number that is none is taken for that."""
        if self.annotations.get(HOLD, "").lower() == "true":
            return True
        return PAUSED_REPLICAS in self.annotations and self.paused is None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that is not about to end."""

    name: str
    assigned: bool
    phase: str
    ready: bool
    #: A container runs, ready or not.
    alive: bool
    #: Unix seconds.
    created: float
    #: When it became ready, Unix seconds; 0 while it is not.
    ready_at: float
    restarts: int
    annotations: dict[str, str]

    @property
    def cost(self) -> int:
        """Its deletion cost, as a ReplicaSet reads it."""
        try:
            return int(self.annotations.get(DELETION_COST, "0"))
        except ValueError:
            return 0

    @property
    def mark(self) -> str:
        """Name of its mark; empty without one."""
        return self.annotations.get(STANDBY, "")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as read."""

    version: str
    holder: str
    #: Raised by each change of holder.
    transitions: int
    #: When its holder last wrote; nobody's clock is compared with it, only whether it moves.
    renewed: str
    #: Seconds of silence after which others take it.
    duration: int
    #: When its holder began, by the holder's clock.
    acquired: dt.datetime | None = None
