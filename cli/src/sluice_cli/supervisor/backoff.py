"""When a part that ended is started again."""

from __future__ import annotations

from typing import NamedTuple

#: Seconds before the first restart, and the most that doubling may make of them: what a killed
#: worker had is to run again within 25 s, however often that happens.
FIRST, LONGEST = 0.5, 8.0
#: Seconds after which a part counts as healthy, so that its next restart is a first one again: well
#: above what a start takes, and no more, or whoever loses a worker now and then waits as for one
#: that can't start.
HEALTHY = 8.0
#: A part that worked this long and then ended cleanly has retired: its successor starts at once.
WORKED = 5.0


class Backoff(NamedTuple):
    """How often a part has ended in a row; a new value for each end."""

    failures: int = 0

    def ended(self, *, code: int, uptime: float) -> tuple[Backoff, float]:
        """What to remember of this end, and the seconds to wait.

        Args:
            code: exit code, negative for a signal.
            uptime: seconds that the part ran.

        """
        if code == 0 and uptime >= WORKED:
            return Backoff(), 0.0
        before = 0 if uptime >= HEALTHY else self.failures
        return Backoff(before + 1), min(FIRST * 2.0 ** min(before, 16), LONGEST)
