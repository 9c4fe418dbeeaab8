"""What a slot does that helps with another run's encode: one segment after another."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from sluice_core.adapters.db import segments
from sluice_core.adapters.db.engine import write
from sluice_core.domain.errors import StoreAwayError
from sluice_core.runtime.children import EndReason
from sluice_core.runtime.helping import is_slot_wanted
from sluice_core.runtime.run import Run, stored

log = structlog.get_logger(__name__)

#: Seconds between words of how far one is.
TELL_EVERY = 1.0


class Turns:
    """The turns of a slot that helps.

    Args:
        run: its own.
        on_progress: told the bytes of the present segment; may raise.

    """

    def __init__(self, run: Run, *, on_progress: Callable[[int], None]) -> None:
        self._run = run
        self._on_progress = on_progress
        self._number = -1
        self._told_at = 0.0
        self._gone = False

    def take(self, fingerprint: str) -> int | None:
        """The next segment; None when nothing is left of this encode."""
        self._run.check()
        deps, run = self._run.deps, self._run
        number = stored(
            deps,
            lambda connection: segments.take(
                connection, run.job.id, run.claim.attempt_id, fingerprint=fingerprint
            ),
        )
        self._number = -1 if number is None else number
        self._gone = False
        return number

    def stop(self) -> str | None:
        """As `Run.stop`; also when the segment is no longer this slot's."""
        return self._run.stop() or (EndReason.STALE if self._gone else None)

    def progress(self, frames: int, size: int) -> None:
        """How far the present segment is: pictures and bytes."""
        self._on_progress(size)
        now = time.monotonic()
        if now - self._told_at < TELL_EVERY:
            return
        self._told_at = now
        try:
            with write(self._run.deps.engine) as connection:
                self._gone = not segments.report(
                    connection,
                    self._run.job.id,
                    self._number,
                    attempt_id=self._run.claim.attempt_id,
                    encoded=frames,
                )
        except StoreAwayError:
            self._run.deps.running.note_store(away=True)

    def finish(self, key: str) -> None:
        """The present segment is stored."""
        run, number = self._run, self._number
        taken = stored(
            run.deps,
            lambda connection: segments.finish(
                connection, run.job.id, number, attempt_id=run.claim.attempt_id, key=key
            ),
        )
        if not taken:
            log.info("segment_refused", number=number)

    def give_way(self) -> bool:
        """Whether somebody else wants the slot."""
        return is_slot_wanted(self._run.deps)
