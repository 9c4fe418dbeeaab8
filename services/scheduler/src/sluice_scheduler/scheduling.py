"""The part of the process that leads, or waits to lead, and fires schedules when it does."""

from __future__ import annotations

import time

import structlog

from sluice_core.adapters.db import firings
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.leases import Lease
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import tell
from sluice_scheduler import firing, housework
from sluice_scheduler.chores import Chores
from sluice_scheduler.elector import DatabaseElector

log = structlog.get_logger(__name__)

#: Turns of a leader within its patience.
TURNS = 5
#: Seconds that a task which runs is given at the end of the process.
STOP_GRACE = 5.0


class Scheduling:
    """Duties for the process' loop: `lead` and `fire`; a thread of its own runs built-in tasks."""

    def __init__(self, deps: StageDeps) -> None:
        self._deps = deps
        self._patience = deps.settings.scheduler.lease_patience
        self._elector = DatabaseElector(deps.engine, holder=deps.worker_id, patience=self._patience)
        self._chores = Chores(deps.engine, housework.tasks(deps), clock=deps.clock)
        #: Fence of the last leadership that was taken up.
        self._taken_up = 0

    @property
    def lead_every(self) -> float:
        """Seconds between two calls of `lead`."""
        return self._patience / TURNS

    def start(self) -> None:
        self._chores.start()

    def stop(self) -> None:
        """Let another one lead at once."""
        self._chores.stop(STOP_GRACE)
        self._elector.give_back()

    def is_alive(self) -> bool:
        """Whether built-in tasks can run."""
        return self._chores.is_alive()

    def lead(self) -> None:
        """Show that this process leads, or see whether it is to."""
        self._elector.turn(time.monotonic())
        lease = self._elector.held(time.monotonic())
        if lease is not None and lease.fence != self._taken_up:
            self._take_up(lease)

    def _take_up(self, lease: Lease) -> None:
        now = self._deps.clock()
        firing.plant(self._deps.engine, now=now)
        with write(self._deps.engine) as connection:
            lost = firings.give_up_older(connection, fence=lease.fence, now=now)
        if lost:
            log.warning("firings_lost", count=lost)
        self._taken_up = lease.fence

    def fire(self) -> None:
        """Start what is due, if this process leads."""
        lease = self._elector.held(time.monotonic())
        if lease is None or lease.fence != self._taken_up:
            return
        now = self._deps.clock()
        for fired in firing.fire_due(self._deps.engine, lease, now=now):
            if fired.job is None:
                self._chores.put(fired)
                continue
            publish_now(self._deps.broker, fired.orders, now=now)
            tell(self._deps, fired.job, "job")
