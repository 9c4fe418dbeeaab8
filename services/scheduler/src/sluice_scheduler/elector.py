"""One of the schedulers leads: it alone fires schedules."""

from __future__ import annotations

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import leases
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.leases import Lease
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.silence import Silence

log = structlog.get_logger(__name__)

#: Part of the patience after which a leader that could not beat stops: well before another one
#: may think it gone.
STOP_AFTER = 0.5
#: Longest gap between two looks that counts, as part of the patience.
MAX_STEP = 0.25


class DatabaseElector:
    """This process' view of the lease; `turn` is to be called every `patience` / 5 or so.

    Args:
        holder: name of this process, unique per start.
        patience: seconds of own attention that another leader's beat may stand still.

    """

    def __init__(self, engine: sa.Engine, *, holder: str, patience: float) -> None:
        self._engine = engine
        self._holder = holder
        self._patience = patience
        self._held: Lease | None = None
        self._beaten_at = 0.0
        self._silence = Silence(max_step=patience * MAX_STEP)

    def held(self, now: float) -> Lease | None:
        """The lease if this process leads; what is written with it must still be confirmed.

        Args:
            now: own monotonic seconds.

        """
        if self._held is not None and now - self._beaten_at > self._patience * STOP_AFTER:
            log.warning("leadership_uncertain", fence=self._held.fence)
            self._forget()
        return self._held

    def turn(self, now: float) -> bool:
        """Beat, or watch and perhaps take over; True when this process has just become the leader.

        Raises:
            StoreAwayError: nobody can tell now.

        """
        if self.held(now) is not None:
            self._beat(now)
            return False
        try:
            with read(self._engine) as connection:
                seen = leases.look(connection, leases.SCHEDULER)
        except StoreAwayError:
            self._silence.forget()
            raise
        return self._may_take(seen, now) and self._take(seen, now)

    def give_back(self) -> None:
        """Let another one lead at once."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            with write(self._engine) as connection:
                leases.give_back(connection, held)
        except StoreAwayError as exc:
            log.info("lease_left_behind", reason=str(exc))

    def _beat(self, now: float) -> None:
        assert self._held is not None  # noqa: S101  # asked by the caller
        with write(self._engine) as connection:
            still_held = leases.beat(connection, self._held)
        if still_held:
            # When it was begun, not when it was answered: another one may have seen it then.
            self._beaten_at = now
            return
        log.warning("leadership_lost", fence=self._held.fence)
        self._forget()

    def _may_take(self, seen: Lease, now: float) -> bool:
        still = self._silence.observe(seen, now)
        return not seen.holder or still >= self._patience

    def _take(self, seen: Lease, now: float) -> bool:
        with write(self._engine) as connection:
            self._held = leases.take(connection, seen, self._holder)
        self._silence.forget()
        if self._held is None:
            return False
        self._beaten_at = now
        log.info("leads", fence=self._held.fence, after=seen.holder or None)
        return True

    def _forget(self) -> None:
        self._held = None
        self._silence.forget()
