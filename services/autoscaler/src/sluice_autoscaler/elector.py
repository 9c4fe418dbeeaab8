"""One of the autoscalers acts: the holder of a Lease.

The client's own election compares wall clocks of this process, can't be stopped, and has no time
limit for its calls. Here a Lease that stands still is judged by own monotonic seconds, and whoever
could not renew stops well before anybody else may begin.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from sluice_autoscaler.cluster import ClusterError, Fault, LeaseRecord
from sluice_core.domain.silence import Silence

log = structlog.get_logger(__name__)

#: Part of the patience after which a leader that could not renew stops.
STOP_AFTER = 0.6
#: Part of the patience after which a leader renews.
RENEW_AFTER = 0.2
#: Longest gap between two looks that counts, as part of the patience.
MAX_STEP = 0.3


class Leases(Protocol):
    """Where the Lease is."""

    def lease(self, name: str) -> LeaseRecord | None: ...

    def write_lease(
        self, name: str, holder: str, *, duration: int, over: LeaseRecord | None
    ) -> LeaseRecord: ...


class KubernetesElector:
    """This process' view of the Lease; `turn` is to be called every second or so.

    Args:
        leases: where it is.
        name: its name.
        holder: name of this process, unique per start.
        patience: seconds that another holder may be silent.

    """

    def __init__(self, leases: Leases, *, name: str, holder: str, patience: float) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._patience = patience
        self._held: LeaseRecord | None = None
        self._renewed_at = 0.0
        self._silence = Silence(max_step=patience * MAX_STEP)

    def leads(self, now: float) -> bool:
        """Whether this process may act now; `now` in own monotonic seconds."""
        if self._held is not None and now - self._renewed_at > self._patience * STOP_AFTER:
            log.warning("leadership_uncertain", lease=self._name)
            self._forget()
        return self._held is not None

    def turn(self, now: float) -> None:
        """Renew, or watch and perhaps take over.

        Raises:
            ClusterError: nobody can tell now.

        """
        if self.leads(now):
            if now - self._renewed_at >= self._patience * RENEW_AFTER:
                self._write(self._held, now)
            return
        seen = self._leases.lease(self._name)
        if self._may_take(seen, now):
            self._write(seen, now)
            if self._held is not None:
                log.info("leads", lease=self._name, transitions=self._held.transitions)

    def give_back(self) -> None:
        """Let another one lead at once."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            self._leases.write_lease(self._name, "", duration=1, over=held)
        except ClusterError as exc:
            log.info("lease_left_behind", reason=str(exc))

    def _may_take(self, seen: LeaseRecord | None, now: float) -> bool:
        if seen is None or not seen.holder:
            return True
        return self._silence.observe(seen, now) >= max(self._patience, seen.duration)

    def _write(self, over: LeaseRecord | None, now: float) -> None:
        try:
            self._held = self._leases.write_lease(
                self._name, self._holder, duration=round(self._patience), over=over
            )
        except ClusterError as exc:
            if exc.fault is not Fault.CONFLICT:
                raise
            if self._held is not None:
                log.warning("leadership_lost", lease=self._name)
            self._forget()
        else:
            # When it was begun, not when it was answered: another one may have seen it then.
            self._renewed_at = now
            self._silence.forget()

    def _forget(self) -> None:
        self._held = None
        self._silence.forget()
