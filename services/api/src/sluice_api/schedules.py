"""What schedules and subscriptions have in common behind their routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import sqlalchemy as sa
from flask import Response, jsonify

from sluice_api.caller import Caller
from sluice_api.deps import Deps
from sluice_api.models import JobRequest
from sluice_api.prefix import of_request
from sluice_api.problems import Code, ProblemError, invalid, not_found
from sluice_api.schedule_models import TriggerRequest
from sluice_api.steering import note_operator
from sluice_api.submit import check
from sluice_core.adapters.cron import ScheduleError, in_zone, next_after, upcoming
from sluice_core.adapters.db import schedules
from sluice_core.adapters.db.schedules import NewSchedule
from sluice_core.domain.job import Request
from sluice_core.domain.schedule import BUILTINS, Firing, Kind, Schedule, Trigger
from sluice_core.domain.view import timestamp

#: Planned times that are shown.
SHOWN = 3
#: Firings that are shown.
SHOWN_FIRINGS = 50
_BUILTIN_WORDS = {builtin.name: builtin.words for builtin in BUILTINS}


def new_trigger(body: TriggerRequest, deps: Deps, *, every: float | None = None) -> Trigger:
    """When a new schedule fires.

    Args:
        body: as sent.
        deps: for the clock and the usual zone.
        every: seconds, when nothing was said.

    Raises:
        ProblemError: 422, it is none.

    """
    if body.cron is None and body.every_seconds is None and every is not None:
        body = body.model_copy(update={"every_seconds": every})
    return _trigger(
        cron=body.cron,
        timezone=body.timezone or deps.settings.jobs.timezone,
        every=body.every_seconds,
        anchor=deps.clock() if body.anchor is None else body.anchor,
    )


def changed_trigger(body: TriggerRequest, old: Trigger) -> Trigger:
    """When a schedule fires after a change.

    Raises:
        ProblemError: as `new_trigger`.

    """
    cron, every = old.cron, old.every
    if body.cron is not None or body.every_seconds is not None:
        cron, every = body.cron, body.every_seconds
    return _trigger(
        cron=cron,
        timezone=body.timezone or old.timezone,
        every=every,
        anchor=old.anchor if body.anchor is None else body.anchor,
    )


def _trigger(*, cron: str | None, timezone: str, every: float | None, anchor: float) -> Trigger:
    try:
        return Trigger(cron=cron, timezone=timezone, every=every, anchor=anchor)
    except ValueError as exc:
        invalid(f"Set either cron or every_seconds: {exc}.")


def planned(trigger: Trigger, now: float) -> float:
    """The first firing.

    Raises:
        ProblemError: 422, it can't be read, or never fires.

    """
    try:
        found = next_after(trigger, now)
    except ScheduleError as exc:
        invalid(f"The schedule was refused: {exc}.")
    if found is None:
        invalid("The schedule would never fire.")
    return found


def add(connection: sa.Connection, new: NewSchedule, *, now: float) -> Schedule:
    """Write a schedule.

    Raises:
        ProblemError: 409, its name is taken or there are too many.

    """
    if schedules.count(connection) >= schedules.CAP:
        raise ProblemError(409, Code.CONFLICT, f"There are {schedules.CAP} schedules already.")
    if new.name in _BUILTIN_WORDS:
        _name_taken(new.name)
    added = schedules.add(connection, new, now=now)
    if added is None:
        _name_taken(new.name)
    return added


def change(
    connection: sa.Connection,
    old: Schedule,
    body: TriggerRequest,
    values: dict[str, Any],
    *,
    now: float,
) -> Schedule:
    """Write what a PATCH says; a change of time counts from now on.

    Args:
        connection: to write with.
        old: the row, locked.
        body: when to fire.
        values: further columns.
        now: Unix seconds.

    Raises:
        ProblemError: 409 or 422.

    """
    trigger = changed_trigger(body, old.trigger)
    enabled = old.enabled if body.enabled is None else body.enabled
    if trigger != old.trigger or enabled != old.enabled:
        values |= {**schedules.trigger_columns(trigger), "enabled": enabled}
        values["next_at"] = planned(trigger, now)
    if body.missed is not None:
        values["missed"] = body.missed
    changed = schedules.change(connection, old.id, values, now=now)
    if changed is None:
        _name_taken(values.get("name", old.name))
    return changed


def note(
    connection: sa.Connection,
    caller: Caller,
    what: str,
    schedule: Schedule,
    *,
    now: float,
    body: TriggerRequest | None = None,
) -> None:
    """Leave a trail of what an operator does to a schedule, in the transaction that does it.

    Args:
        connection: to write with.
        caller: who does it; only operators leave a trail.
        what: `create`, `change`, `run` or `delete`.
        schedule: as it was, or as it was made.
        now: Unix seconds.
        body: of a change, for what was asked; of a job only that there was one, since its link and
            its callback may hold secrets and the trail outlives the schedule.

    """
    of = Kind.SUBSCRIPTION if schedule.kind is Kind.SUBSCRIPTION else "schedule"
    asked: dict[str, Any] = {}
    if body is not None:
        asked = body.model_dump(mode="json", exclude_none=True)
        if "job" in asked:
            asked["job"] = "changed"
    detail = {"name": schedule.name} | ({"asked": asked} if asked else {})
    note_operator(connection, caller, f"{of}.{what}", now=now, target=schedule.id, **detail)


def _name_taken(name: str) -> NoReturn:
    raise ProblemError(409, Code.CONFLICT, f"There is a schedule called {name!r} already.")


def visible(
    connection: sa.Connection,
    caller: Caller,
    schedule_id: str,
    *,
    kinds: Sequence[Kind],
    lock: bool = False,
) -> Schedule:
    """The schedule, if the caller may see it.

    Raises:
        ProblemError: 404.

    """
    found = schedules.get(connection, schedule_id, lock=lock)
    if found is None or found.kind not in kinds or not _may_see(caller, found):
        not_found("There is no such schedule.")
    return found


def _may_see(caller: Caller, schedule: Schedule) -> bool:
    if schedule.kind is Kind.BUILTIN:
        return caller.sees_all
    return caller.may_see(schedule.api_key_id)


def view(schedule: Schedule, last: Firing | None) -> dict[str, Any]:
    """A schedule as the API shows it."""
    trigger = schedule.trigger
    return {
        "id": schedule.id,
        "name": schedule.name,
        "kind": schedule.kind.value,
        "enabled": schedule.enabled,
        "cron": trigger.cron,
        "timezone": trigger.timezone,
        "every_seconds": trigger.every,
        "anchor": timestamp(trigger.anchor) if trigger.every is not None else None,
        "missed": schedule.missed.value,
        "next": _next(schedule),
        "last": firing_view(last) if last else None,
        "help": _BUILTIN_WORDS.get(schedule.name) if schedule.kind is Kind.BUILTIN else None,
        "job": request_view(schedule.request) if schedule.request else None,
        "created_at": timestamp(schedule.created_at),
        "updated_at": timestamp(schedule.updated_at),
    }


def _next(schedule: Schedule) -> list[dict[str, Any]]:
    if not schedule.enabled or schedule.next_at is None:
        return []
    moments = [schedule.next_at]
    try:
        moments += upcoming(schedule.trigger, schedule.next_at, SHOWN - 1)
        zone = schedule.trigger.timezone
        return [{"utc": timestamp(m), "local": in_zone(m, zone)} for m in moments]
    except ScheduleError:
        # It was read when it was written; a zone may be gone with an update. Its firing says so.
        return []


def firing_view(firing: Firing) -> dict[str, Any]:
    return {
        "planned_at": timestamp(firing.planned_at),
        "fired_at": timestamp(firing.fired_at),
        "ended_at": timestamp(firing.ended_at),
        "outcome": firing.outcome.value if firing.outcome else None,
        "job_id": firing.job_id,
        "message": firing.message,
    }


def request_view(request: Request) -> dict[str, Any]:
    """A request in the form in which it was sent."""
    values = asdict(request)
    values["priority"] = values.pop("lane")
    values.pop("not_before")
    return values


def request_of(deps: Deps, caller: Caller, job: JobRequest) -> Request:
    """The checked request of the jobs that a schedule will submit.

    Raises:
        ProblemError: 422.

    """
    if job.not_before is not None:
        invalid("job.not_before: a schedule has times of its own.")
    return check(
        job, presets=deps.presets, addresses=deps.addresses, api_key_id=caller.api_key_id
    ).request


def created(body: dict[str, Any], where: str) -> Response:
    response = jsonify(body)
    response.status_code = 201
    response.headers["Location"] = f"{of_request()}/v1/{where}/{body['id']}"
    return response
