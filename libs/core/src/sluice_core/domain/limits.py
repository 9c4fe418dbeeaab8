"""How long a run may take."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds between the soft limit and the hard one, where only one of them is set.
BETWEEN = 60.0

#: Seconds of media that are assumed where nobody knows how long it is.
UNKNOWN_DURATION = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds from a run's start; None is no limit."""

    #: The run ends cleanly and may be tried again.
    soft: float | None
    #: What has not ended by then is killed.
    hard: float | None


def time_limits(
    soft: float | None, hard: float | None, *, per_second: float, duration: float | None
) -> TimeLimits:
    """The limits of one run.

    Args:
        soft: as set for the stage, or None.
        hard: likewise.
        per_second: what each second of media adds to both.
        duration: seconds of media, where known.

    """
    if soft is None and hard is None:
        return TimeLimits(None, None)
    extra = per_second * (duration or UNKNOWN_DURATION) if per_second else 0.0
    if hard is None:
        hard = (soft or 0.0) + BETWEEN
    if soft is None:
        soft = max(hard - BETWEEN, hard / 2)
    return TimeLimits(soft + extra, hard + extra)
