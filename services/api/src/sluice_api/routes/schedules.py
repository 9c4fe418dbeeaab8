"""Schedules: jobs again and again, and the tasks that are built in."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import schedule_models as m
from sluice_api import schedules as plans
from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError
from sluice_core.adapters.db import firings, schedules
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.schedule import Kind, Missed, Schedule

_TAG = Tag(name="schedules", description="What is to happen again and again.")
_KINDS = (Kind.SUBMIT, Kind.BUILTIN)


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("schedules", __name__, url_prefix="/v1/schedules", abp_tags=[_TAG])
    _add_reading(api, deps)
    _add_writing(api, deps)
    _add_moving(api, deps)
    return api


def _add_reading(api: APIBlueprint, deps: Deps) -> None:
    @api.get("", summary="List schedules", responses={200: m.ScheduleList})
    def list_schedules() -> Response:
        """One's own; operators see everybody's and what is built in."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> list[dict[str, Any]]:
            found = schedules.list_all(connection, kinds=_KINDS, api_key_id=caller.only_key)
            return _views(connection, found)

        return jsonify({"schedules": deps.database.read(work)})

    @api.get("/<string:id>", summary="Show a schedule", responses={200: m.ScheduleModel})
    def show(path: m.SchedulePath) -> Response:
        """With its next three firings, in its zone and in UTC."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> dict[str, Any]:
            return _views(connection, [plans.visible(connection, caller, path.id, kinds=_KINDS)])[0]

        return jsonify(deps.database.read(work))

    @api.get("/<string:id>/firings", summary="What came of it", responses={200: m.FiringList})
    def list_firings(path: m.SchedulePath) -> Response:
        """The last firings, newest first, those that were skipped too; of subscriptions as well."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> list[dict[str, Any]]:
            plans.visible(connection, caller, path.id, kinds=tuple(Kind))
            found = firings.list_of(connection, path.id, limit=plans.SHOWN_FIRINGS)
            return [plans.firing_view(f) for f in found]

        return jsonify({"firings": deps.database.read(work)})


def _add_writing(api: APIBlueprint, deps: Deps) -> None:
    @api.post("", summary="Add a schedule", responses={201: m.ScheduleModel})
    def add(body: m.ScheduleRequest) -> Response:
        """A job is submitted each time, unless the one of the time before still runs."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()
        trigger = plans.new_trigger(body, deps)
        new = schedules.NewSchedule(
            name=body.name,
            kind=Kind.SUBMIT,
            trigger=trigger,
            next_at=plans.planned(trigger, now),
            missed=Missed(body.missed or Missed.SKIP),
            request=plans.request_of(deps, caller, body.job),
            enabled=body.enabled is not False,
            api_key_id=caller.api_key_id,
        )

        def work(connection: sa.Connection) -> dict[str, Any]:
            made = plans.add(connection, new, now=now)
            plans.note(connection, caller, "create", made, now=now)
            return _views(connection, [made])[0]

        return plans.created(deps.database.write(work), "schedules")

    @api.patch("/<string:id>", summary="Change a schedule", responses={200: m.ScheduleModel})
    def change(path: m.SchedulePath, body: m.ScheduleChange) -> Response:
        """While the system runs; a change of its time counts from now on."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> dict[str, Any]:
            old = plans.visible(connection, caller, path.id, kinds=_KINDS, lock=True)
            values = _changes(deps, caller, body, old)
            changed = plans.change(connection, old, body, values, now=now)
            plans.note(connection, caller, "change", old, now=now, body=body)
            return _views(connection, [changed])[0]

        return jsonify(deps.database.write(work))


def _add_moving(api: APIBlueprint, deps: Deps) -> None:
    @api.post("/<string:id>/run", summary="Fire now", responses={202: m.ScheduleModel})
    def run(path: m.SchedulePath) -> Response:
        """Within about a second, of subscriptions as well; the times that are planned stay."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> dict[str, Any]:
            kinds = tuple(Kind)
            found = plans.visible(connection, caller, path.id, kinds=kinds, lock=True)
            if not found.enabled:
                raise ProblemError(409, Code.CONFLICT, "The schedule is disabled.")
            changed = schedules.change(connection, found.id, {"next_at": now}, now=now)
            plans.note(connection, caller, "run", found, now=now)
            return _views(connection, [changed or found])[0]

        response = jsonify(deps.database.write(work))
        response.status_code = 202
        return response

    @api.delete("/<string:id>", summary="Delete a schedule", responses={200: m.ScheduleDeleted})
    def delete(path: m.SchedulePath) -> Response:
        """Its jobs stay; what is built in can't be deleted, only disabled."""
        caller = need(Scope.SUBMIT)

        def work(connection: sa.Connection) -> None:
            found = plans.visible(connection, caller, path.id, kinds=_KINDS, lock=True)
            if found.kind is Kind.BUILTIN:
                raise ProblemError(409, Code.CONFLICT, "A built-in schedule can't be deleted.")
            schedules.remove(connection, found.id)
            plans.note(connection, caller, "delete", found, now=deps.clock())

        deps.database.write(work)
        return jsonify({"id": path.id, "deleted": True})


def _changes(deps: Deps, caller: Caller, body: m.ScheduleChange, old: Schedule) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if old.kind is Kind.BUILTIN and (body.name is not None or body.job is not None):
        raise ProblemError(409, Code.CONFLICT, "Of a built-in schedule only its time can change.")
    if body.name is not None:
        values["name"] = body.name
    if body.job is not None:
        values["request"] = schedules.request_to_json(plans.request_of(deps, caller, body.job))
    return values


def _views(connection: sa.Connection, found: list[Schedule]) -> list[dict[str, Any]]:
    last = firings.newest(connection, [s.id for s in found])
    return [plans.view(s, last.get(s.id)) for s in found]
