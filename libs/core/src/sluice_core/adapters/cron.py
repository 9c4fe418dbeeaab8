"""Firing times, by cronsim and the time zone database."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from sluice_core.domain.schedule import CRON_FIELDS, Trigger, next_of_interval

#: The year 9999 ends the calendar; one that fires this late never fires.
_END = datetime(9998, 1, 1, tzinfo=UTC).timestamp()
#: Planned times that a change of clocks may put at or before the moment asked for.
_LOOK_AHEAD = 5_000


class ScheduleError(ValueError):
    """What is wrong with a trigger, in one sentence."""


def zone(name: str) -> ZoneInfo:
    """The time zone.

    Raises:
        ScheduleError: there is none of this name.

    """
    try:
        return ZoneInfo(name)
    # A name may also be no path, or that of a folder.
    except (ValueError, KeyError, OSError) as exc:
        raise ScheduleError(f"there is no time zone {name!r}") from exc


def next_after(trigger: Trigger, after: float) -> float | None:
    """The first firing after a moment; None when it never fires (again).

    Raises:
        ScheduleError: the expression or the zone can't be read.

    """
    if trigger.every is not None:
        found = next_of_interval(trigger.every, trigger.anchor, after)
        return found if found < _END else None
    try:
        # In the hour that comes twice the library looks at the clock's face alone, and may give
        # times that have passed.
        for moment in islice(_times(trigger, after), _LOOK_AHEAD):
            if moment.timestamp() > after:
                return moment.timestamp()
    except (OverflowError, ValueError) as exc:
        if isinstance(exc, ScheduleError):
            raise
    return None


def _times(trigger: Trigger, after: float) -> CronSim:
    expression = trigger.cron or ""
    if len(expression.split()) != CRON_FIELDS:
        raise ScheduleError("a cron expression has five fields: minute hour day month weekday")
    moment = datetime.fromtimestamp(after, zone(trigger.timezone))
    try:
        return CronSim(expression, moment)
    except CronSimError as exc:
        raise ScheduleError(f"the cron expression can't be read: {exc}".lower()) from exc


def upcoming(trigger: Trigger, after: float, count: int) -> list[float]:
    """The next firings, at most `count`.

    Raises:
        ScheduleError: as `next_after`.

    """
    found: list[float] = []
    while len(found) < count:
        moment = next_after(trigger, found[-1] if found else after)
        if moment is None:
            break
        found.append(moment)
    return found


def in_zone(moment: float, timezone: str) -> str:
    """RFC 3339 with the zone's own offset, to the second."""
    return datetime.fromtimestamp(moment, zone(timezone)).isoformat(timespec="seconds")
