"""Fires what is due: each planned time once, whoever else is at it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sqlalchemy as sa
import structlog

from sluice_core.adapters.cron import ScheduleError, next_after
from sluice_core.adapters.db import firings, leases, schedules
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.leases import Lease
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.job import ONLY_NEW, Job
from sluice_core.domain.schedule import (
    BUILTINS,
    FiringOutcome,
    Kind,
    Missed,
    Schedule,
    Trigger,
    is_missed,
)

log = structlog.get_logger(__name__)

#: Schedules fired in one turn.
BATCH = 100


@dataclass(frozen=True, slots=True)
class Fired:
    """What a firing started: a job, or a task that is to be run now."""

    schedule: Schedule
    planned_at: float
    job: Job | None = None
    #: To be published once the transaction is committed.
    orders: list[OutboxRow] = field(default_factory=list)


def plant(engine: sa.Engine, *, now: float) -> None:
    """Write the schedules that are built in, where they are not there yet."""
    with write(engine) as connection:
        for builtin in BUILTINS:
            trigger = Trigger(every=builtin.every)
            new = schedules.NewSchedule(
                name=builtin.name,
                kind=Kind.BUILTIN,
                trigger=trigger,
                next_at=next_after(trigger, now),
                missed=Missed.ONCE,
            )
            schedules.add(connection, new, now=now)


def fire_due(engine: sa.Engine, lease: Lease, *, now: float) -> list[Fired]:
    """Fire every schedule whose time has come, each in a transaction of its own.

    Returns:
        what was started; nothing more once somebody else leads.

    Raises:
        StoreAwayError: what was fired before stays fired.

    """
    with read(engine) as connection:
        due = schedules.due_ids(connection, now=now, limit=BATCH)
    started: list[Fired] = []
    for schedule_id in due:
        with write(engine) as connection:
            if not leases.confirm(connection, lease):
                break
            fired = fire(connection, lease.fence, schedule_id, now=now)
        if fired is not None:
            log.info("fired", schedule=fired.schedule.name, planned_at=fired.planned_at)
            started.append(fired)
    return started


def fire(connection: sa.Connection, fence: int, schedule_id: str, *, now: float) -> Fired | None:
    """Fire one schedule that is due, and plan its next time; None when nothing was started."""
    schedule = schedules.get(connection, schedule_id, lock=True)
    if schedule is None or not schedule.enabled:
        return None
    planned_at = schedule.next_at
    if planned_at is None or planned_at > now:
        return None
    refused = _plan_next(connection, schedule, planned_at, now) or _why_not(
        connection, schedule, planned_at, now
    )
    is_new = firings.record(
        connection,
        schedule,
        planned_at,
        fence=fence,
        now=now,
        outcome=refused[0] if refused else None,
        message=refused[1] if refused else None,
    )
    if refused or not is_new:
        log.info("not_fired", schedule=schedule.name, reason=refused[1] if refused else "fired")
        return None
    if schedule.kind is Kind.BUILTIN:
        return Fired(schedule, planned_at)
    return _submit(connection, schedule, planned_at, now)


_Refused = tuple[FiringOutcome, str] | None


def _plan_next(
    connection: sa.Connection, schedule: Schedule, planned_at: float, now: float
) -> _Refused:
    # From now on, not from then: times that have passed are never made up for one by one.
    try:
        next_at = next_after(schedule.trigger, max(planned_at, now))
        refused = None
    except ScheduleError as exc:
        # It could be read once; a zone may be gone with an update.
        next_at, refused = None, (FiringOutcome.FAILED, str(exc))
    schedules.change(connection, schedule.id, {"next_at": next_at}, now=now)
    return refused


def _why_not(
    connection: sa.Connection, schedule: Schedule, planned_at: float, now: float
) -> _Refused:
    if is_missed(planned_at, now) and schedule.missed is Missed.SKIP:
        return FiringOutcome.MISSED, "no scheduler ran at that time"
    if firings.is_running(connection, schedule.id):
        return FiringOutcome.OVERLAP, "what was started before still runs"
    return None


def _submit(
    connection: sa.Connection, schedule: Schedule, planned_at: float, now: float
) -> Fired | None:
    if schedule.request is None:
        raise ValueError(f"schedule {schedule.id} has no request")
    request = schedule.request
    if schedule.kind is Kind.SUBSCRIPTION:
        request = replace(request, playlist=ONLY_NEW)
    new = job_store.NewJob(request=request, api_key_id=schedule.api_key_id, schedule_id=schedule.id)
    job, order = job_store.insert_many(connection, [new], now=now)[0]
    if job is None or order is None:
        raise ValueError("a job without a key of its own can't be there already")
    firings.name_job(connection, schedule.id, planned_at, job.id)
    firings.end(
        connection,
        schedule.id,
        planned_at,
        outcome=FiringOutcome.OK,
        message="submitted",
        now=now,
    )
    return Fired(schedule, planned_at, job, [order])
