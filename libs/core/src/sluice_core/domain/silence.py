"""How long somebody has been silent, judged by own attention and nobody's clock."""

from __future__ import annotations


class Silence:
    """Watches what its owner keeps changing, e.g. a lease with a counter of beats.

    Only time between two looks counts, and of a long gap (this process was suspended, or could not
    look) only `max_step`: whoever did not look can't judge.

    Args:
        max_step: most seconds that one pair of looks adds.

    """

    def __init__(self, *, max_step: float) -> None:
        self._max_step = max_step
        self._seen: object = None
        self._looked_at = 0.0
        self._still = 0.0

    def observe(self, seen: object, now: float) -> float:
        """Seconds that it has been as it is now.

        Args:
            seen: all of it that changes with a sign of life.
            now: own monotonic seconds.

        """
        step = min(now - self._looked_at, self._max_step)
        self._looked_at = now
        self._still = self._still + step if seen == self._seen else 0.0
        self._seen = seen
        return self._still

    def forget(self) -> None:
        """What was seen counts no more."""
        self._seen = None
