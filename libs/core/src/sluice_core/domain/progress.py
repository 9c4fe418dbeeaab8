"""How often progress is worth a write."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor

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


#: What a run must have added for its loss to blame nobody.
DURABLE_BYTES = 1024 * 1024
DURABLE_PERCENT = 1.0


class Durable:
    """Whether a run has put something away that the next one goes on from.

    Only a download does so by its figures: what it fetched stays. Of an encode whole segments stay,
    however far it was; see `Run.put_away`.
    """

    def __init__(self, stage: Actor) -> None:
        self._first: Progress | None = None
        self._open = stage is Actor.DOWNLOAD

    def is_news(self, progress: Progress) -> bool:
        """True once, at the first report that shows enough beyond what an earlier run left."""
        first = self._first = self._first or progress
        grown = (progress.bytes or 0) - (first.bytes or 0)
        percent = (progress.percent or 0.0) - (first.percent or 0.0)
        if not self._open or (grown < DURABLE_BYTES and percent < DURABLE_PERCENT):
            return False
        self._open = False
        return True


def _never_back(last: Progress, new: Progress) -> Progress:
    """Estimates may grow; what people saw must not shrink."""
    if last.percent is not None and (new.percent is None or new.percent < last.percent):
        return replace(new, percent=last.percent)
    return new


def _stepped(last: Progress, new: Progress) -> bool:
    if new.percent is None or last.percent is None:
        return new.percent != last.percent
    return new.percent - last.percent >= STEP_PERCENT
