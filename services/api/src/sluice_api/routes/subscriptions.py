"""Subscriptions: lists that are looked at again and again, whose new entries become jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import schedule_models as m
from sluice_api import schedules as plans
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError
from sluice_core.adapters.db import firings, moves, schedules, subscriptions
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.job import Job
from sluice_core.domain.schedule import Kind, Missed, Schedule

_TAG = Tag(name="subscriptions", description="Channels, playlists and feeds whose news are wanted.")
_KINDS = (Kind.SUBSCRIPTION,)
#: Seconds between two looks at a list, when nothing was said.
CHECK_EVERY = 3600.0


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("subscriptions", __name__, url_prefix="/v1/subscriptions", abp_tags=[_TAG])
    _add_reading(api, deps)
    _add_writing(api, deps)
    return api


def _add_reading(api: APIBlueprint, deps: Deps) -> None:
    @api.get("", summary="List subscriptions", responses={200: m.SubscriptionList})
    def list_subscriptions() -> Response:
        """One's own; operators see everybody's."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> list[dict[str, Any]]:
            found = schedules.list_all(connection, kinds=_KINDS, api_key_id=caller.only_key)
            return _views(connection, found)

        return jsonify({"subscriptions": deps.database.read(work)})

    @api.get("/<string:id>", summary="Show a subscription", responses={200: m.SubscriptionModel})
    def show(path: m.SchedulePath) -> Response:
        """Its firings are at `/v1/schedules/{id}/firings`."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> dict[str, Any]:
            return _views(connection, [plans.visible(connection, caller, path.id, kinds=_KINDS)])[0]

        return jsonify(deps.database.read(work))


def _add_writing(api: APIBlueprint, deps: Deps) -> None:
    @api.post("", summary="Subscribe", responses={201: m.SubscriptionModel})
    def add(body: m.SubscriptionRequest) -> Response:
        """The first look comes at once; what it finds becomes jobs only with `backfill`."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()
        trigger = plans.new_trigger(body, deps, every=CHECK_EVERY)
        plans.planned(trigger, now)
        request = plans.request_of(deps, caller, body.job_request())
        new = schedules.NewSchedule(
            name=body.name or request.url[:128],
            kind=Kind.SUBSCRIPTION,
            trigger=trigger,
            next_at=now,
            missed=Missed(body.missed or Missed.ONCE),
            request=request,
            backfill=body.backfill,
            enabled=body.enabled is not False,
            api_key_id=caller.api_key_id,
        )

        def work(connection: sa.Connection) -> dict[str, Any]:
            made = plans.add(connection, new, now=now)
            plans.note(connection, caller, "create", made, now=now)
            return _views(connection, [made])[0]

        return plans.created(deps.database.write(work), "subscriptions")

    @api.patch(
        "/<string:id>", summary="Change a subscription", responses={200: m.SubscriptionModel}
    )
    def change(path: m.SchedulePath, body: m.SubscriptionChange) -> Response:
        """What was seen stays seen."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> dict[str, Any]:
            old = plans.visible(connection, caller, path.id, kinds=_KINDS, lock=True)
            values = _changes(deps, body, old)
            changed = plans.change(connection, old, body, values, now=now)
            plans.note(connection, caller, "change", old, now=now, body=body)
            return _views(connection, [changed])[0]

        return jsonify(deps.database.write(work))

    @api.delete("/<string:id>", summary="Unsubscribe", responses={200: m.ScheduleDeleted})
    def delete(path: m.SchedulePath) -> Response:
        """A look that is under way is canceled; jobs of entries stay."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> list[Job]:
            found = plans.visible(connection, caller, path.id, kinds=_KINDS)
            # Jobs are locked before their subscription, as when a look ends: two orders of locks
            # are a deadlock.
            under_way = schedules.checks_under_way(connection, path.id)
            canceled = [moves.cancel(connection, job_id, now=now) for job_id in under_way]
            schedules.get(connection, path.id, lock=True)
            schedules.remove(connection, path.id)
            plans.note(connection, caller, "delete", found, now=now)
            return [job for job in canceled if job is not None]

        deps.publisher.send([], deps.database.write(work))
        return jsonify({"id": path.id, "deleted": True})


def _changes(deps: Deps, body: m.SubscriptionChange, old: Schedule) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if body.name is not None:
        values["name"] = body.name
    if body.preset is not None and old.request is not None:
        if body.preset not in deps.presets:
            words = f"There is no preset {body.preset!r}."
            raise ProblemError(422, Code.UNKNOWN_PRESET, words)
        request = replace(old.request, preset=body.preset)
        values["request"] = schedules.request_to_json(request)
    return values


def _views(connection: sa.Connection, found: list[Schedule]) -> list[dict[str, Any]]:
    last = firings.newest(connection, [s.id for s in found])
    seen = subscriptions.counts(connection, [s.id for s in found])
    return [
        {
            **plans.view(s, last.get(s.id)),
            "url": s.request.url if s.request else "",
            "preset": s.request.preset if s.request else "",
            "backfill": s.backfill,
            "entries_seen": seen.get(s.id, 0),
        }
        for s in found
    ]
