"""A worker on standby takes nothing new: it may be taken away, or taken back.

The autoscaler marks pods in Redis, under a name that is new for each mark. A worker that sees the
mark stops fetching, and repeats the name once nothing runs: only then may its pod go. An emptied
Redis must not wake it, so the mark holds until it is withdrawn in words, or was not seen for so
long that whoever set it must be gone.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What a withdrawn mark says instead of a name.
WITHDRAWN = "-"

#: Seconds after which a mark that is not seen any more holds no longer.
HOLDS = 60.0


@dataclass(frozen=True, slots=True)
class Standby:
    """What a worker knows of its mark."""

    #: Name of the mark; empty without one.
    name: str = ""
    #: Own monotonic seconds when it was last seen.
    seen_at: float = 0.0

    def seen(self, value: str | None, now: float) -> Standby:
        """After a look: `value` as it stands in Redis, None when nothing stands there."""
        if value == WITHDRAWN or (value is None and now - self.seen_at > HOLDS):
            return Standby()
        return self if value is None else Standby(value, now)

    def unseen(self, now: float) -> Standby:
        """After a look that failed."""
        return self.seen(None, now)


def worker_id(pod: str, stage: str, pid: int, suffix: str) -> str:
    """The name of one start of a worker; `suffix` without a dash."""
    return f"{pod}-{stage}-{pid}-{suffix}"


def pod_of(worker: str) -> str:
    """The pod, or machine, of a worker by its id."""
    return worker.rsplit("-", 3)[0]
