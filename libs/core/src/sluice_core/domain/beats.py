"""Which runs lost their worker, judged without comparing anybody's clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Seen:
    beat: int
    #: Seconds of our own attention during which the counter stood still.
    still: float = 0.0


class BeatWatch:
    """Calls a run lost once its beat stood still for long enough under our own eyes.

    Only time between two readings that both succeeded counts, and of a long gap (this process was
    suspended, or the database was away) only `max_step`: whoever did not look can't judge.

    Args:
        patience: seconds that a beat may stand still.
        max_step: most seconds that one pair of readings adds.

    """

    def __init__(self, *, patience: float = 15.0, max_step: float = 4.0) -> None:
        self._patience = patience
        self._max_step = max_step
        self._seen: dict[str, _Seen] = {}
        self._looked_at: float | None = None

    def observe(self, beats: Iterable[tuple[str, int]], now: float) -> list[str]:
        """Take one reading of all open runs.

        Args:
            beats: (attempt id, counter).
            now: own monotonic seconds.

        Returns:
            attempt ids that are lost; they are forgotten here.

        """
        step = 0.0 if self._looked_at is None else min(now - self._looked_at, self._max_step)
        self._looked_at = now
        current: dict[str, _Seen] = {}
        lost: list[str] = []
        for attempt_id, beat in beats:
            seen = self._seen.get(attempt_id)
            if seen is None or seen.beat != beat:
                current[attempt_id] = _Seen(beat)
                continue
            seen.still += step
            if seen.still >= self._patience:
                lost.append(attempt_id)
            else:
                current[attempt_id] = seen
        self._seen = current
        return lost

    def failed(self) -> None:
        """A reading failed: nothing that happened meanwhile counts."""
        self._looked_at = None
        for seen in self._seen.values():
            seen.still = 0.0
