"""What is to happen again and again, and when. Times are Unix seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from sluice_core.domain.job import Request

#: A firing that is late by more than this was missed: nobody scheduled at its time. Well above the
#: time that another scheduler needs to take over.
GRACE = 60.0
#: Shortest interval, seconds: schedulers look twice a second.
MIN_EVERY = 1.0
#: Longest interval: ten years of seconds.
MAX_EVERY = 10 * 366 * 86_400.0
#: Fields of a cron expression: minute, hour, day of month, month, day of week.
CRON_FIELDS = 5


class Kind(StrEnum):
    """What a schedule does."""

    #: Submits a job each time.
    SUBMIT = "submit"
    #: Reads a channel, playlist or feed; entries not seen before become jobs.
    SUBSCRIPTION = "subscription"
    #: Runs a task of Sluice's own; can't be deleted.
    BUILTIN = "builtin"


class Missed(StrEnum):
    """What follows times at which no scheduler ran; they are never made up for one by one."""

    #: Wait for the next planned time.
    SKIP = "skip"
    #: Fire once, for all that were missed.
    ONCE = "once"


class FiringOutcome(StrEnum):
    """What became of one planned time."""

    OK = "ok"
    FAILED = "failed"
    #: Skipped, since what the last firing started still runs.
    OVERLAP = "overlap"
    #: Skipped by the policy for missed firings.
    MISSED = "missed"
    #: Its scheduler was lost while the task ran.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a schedule fires: by a cron expression in a time zone, or every so many seconds.

    An interval is measured in real seconds from its anchor, whatever clocks on walls do. A cron
    expression is read as Debian's cron does: at a fixed time of day that the change to summer time
    leaves out it fires right after the gap, at one that comes twice it fires the first time alone;
    with a `*` in the minutes or hours it fires at every matching minute that there is.
    """

    cron: str | None = None
    timezone: str = "UTC"
    #: Seconds.
    every: float | None = None
    #: A firing of the interval falls on this moment; the others follow from it.
    anchor: float = 0.0

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ValueError("a schedule has either a cron expression or an interval")
        if self.every is not None and not MIN_EVERY <= self.every <= MAX_EVERY:
            raise ValueError(f"an interval is {MIN_EVERY:.0f} to {MAX_EVERY:.0f} seconds")


def next_of_interval(every: float, anchor: float, after: float) -> float:
    """The first moment after `after` that lies a whole number of intervals from the anchor."""
    steps = math.floor((after - anchor) / every) + 1
    found = anchor + steps * every
    # Rounding may put it a hair before.
    return found if found > after else anchor + (steps + 1) * every


@dataclass(frozen=True, slots=True)
class Schedule:
    """One row of `schedules`."""

    id: str
    name: str
    kind: Kind
    enabled: bool
    trigger: Trigger
    missed: Missed
    #: What each of its jobs is asked for; None when built in.
    request: Request | None
    backfill: bool
    baseline_done: bool
    api_key_id: str | None
    created_at: float
    updated_at: float
    next_at: float | None


@dataclass(frozen=True, slots=True)
class Firing:
    """One row of `firings`."""

    schedule_id: str
    planned_at: float
    fired_at: float
    ended_at: float | None
    outcome: FiringOutcome | None
    job_id: str | None
    message: str | None


def is_missed(planned_at: float, now: float) -> bool:
    """Whether a planned time passed with nobody there."""
    return now - planned_at > GRACE


@dataclass(frozen=True, slots=True)
class Builtin:
    """A task of Sluice's own."""

    name: str
    #: Seconds between two runs, until an operator changes it.
    every: float
    words: str


DELETE_EXPIRED = "delete-expired-files"
RETRY_TRANSIENT = "retry-transient-failures"
PURGE_ROWS = "purge-old-rows"
SWEEP_STORAGE = "sweep-temporary-files"
TRIM = "trim-dead-letters-and-streams"

BUILTINS = (
    Builtin(DELETE_EXPIRED, 60.0, "Delete finished files whose time is over."),
    Builtin(RETRY_TRANSIENT, 600.0, "Try jobs again whose failure may have passed by itself."),
    Builtin(PURGE_ROWS, 3600.0, "Remove rows of jobs, keys, firings and callbacks of long ago."),
    Builtin(SWEEP_STORAGE, 3600.0, "Remove files in storage that no row points at."),
    Builtin(TRIM, 600.0, "Cut dead letters and event streams to their caps."),
)
