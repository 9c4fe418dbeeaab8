"""How often progress is worth a write."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice_core.domain.job import Progress

#: A write per 2 percent or per 2 seconds, whichever comes first, but no more often than
#: `MIN_INTERVAL`: 50 steps of 2 % and a few by time keep an 800-fragment file at about 60.
STEP_PERCENT = 2.0
MAX_INTERVAL = 2.0
MIN_INTERVAL = 0.2


@dataclass(slots=True)
class ProgressGate:
    """Lets through what is worth writing: the first, each 2 %, each 2 s; never a step back."""

    _last: Progress | None = None
    _last_at: float = 0.0

    def admit(self, progress: Progress, now: float) -> Progress | None:
        """The value to write, or None.

        Args:
            progress: newest reading.
            now: monotonic seconds.

        """
        last = self._last
        if last is not None:
            progress = _never_back(last, progress)
            elapsed = now - self._last_at
            if elapsed < MAX_INTERVAL and not (
                elapsed >= MIN_INTERVAL and _stepped(last, progress)
            ):
                return None
        self._last, self._last_at = progress, now
        return progress


def _never_back(last: Progress, new: Progress) -> Progress:
    """Estimates may grow; what people saw must not shrink."""
    if last.percent is not None and (new.percent is None or new.percent < last.percent):
        return replace(new, percent=last.percent)
    return new


def _stepped(last: Progress, new: Progress) -> bool:
    if new.percent is None or last.percent is None:
        return new.percent != last.percent
    return new.percent - last.percent >= STEP_PERCENT
