"""Streams of events."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import BaseModel

from sluice_api import models as m
from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_api.events.messages import Watch
from sluice_api.events.stream import Stream, read_start, since_of
from sluice_api.problems import unavailable
from sluice_api.routes.jobs import visible
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.states import TERMINAL

_TAG = Tag(
    name="events",
    description=(
        "Server-sent events: `job` (the whole job), `progress` (only figures), `deleted`, and "
        "`snapshot` before jobs that a client can't tell from what it missed."
    ),
)
_ANSWER: dict[str | int | HTTPStatus, type[BaseModel] | dict[Any, Any] | None] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

#: Streams of one process: each holds a connection.
MAX_CLIENTS = 6_000


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("events", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/events", summary="Follow all jobs, or some", responses=_ANSWER)
    def all_events(query: m.EventsQuery) -> Response:
        """`Last-Event-ID` resumes: no state change is missed, figures may be skipped."""
        caller = need(Scope.READ)
        ids = frozenset(query.ids.split(",")) if query.ids else None
        return _answer(deps, caller, Watch(ids, caller.only_key), _since(deps))

    @api.get(
        "/jobs/<string:id>/events",
        summary="Follow one job",
        responses={**_ANSWER, 204: None},
    )
    def job_events(path: m.JobPath) -> Response:
        """Ends after the job's end; 204 tells a returning client that there is nothing more."""
        caller = need(Scope.READ)
        job = deps.database.read(lambda c: visible(c, caller, path.id))
        watch = Watch(frozenset({job.id}), caller.only_key, ends=True)
        since = _since(deps)
        if since is not None and job.status in TERMINAL:
            missed = deps.database.read(lambda c: read_start(c, watch, since))
            if not missed.shown:
                return Response(status=204)
        return _answer(deps, caller, watch, since)

    return api


def _since(deps: Deps) -> float | None:
    return since_of(request.headers.get("Last-Event-ID"), deps.clock())


def _answer(deps: Deps, caller: Caller, watch: Watch, since: float | None) -> Response:
    if deps.hub.clients >= MAX_CLIENTS or deps.hub.is_closing:
        raise unavailable("All places for streams are taken; try again soon.")
    stream = Stream(
        hub=deps.hub,
        database=deps.database,
        positions=deps.positions,
        watch=watch,
        since=since,
        still_allowed=_still_allowed(deps, caller),
    )
    response = Response(iter(stream), content_type="text/event-stream; charset=utf-8")
    response.headers["Cache-Control"] = "no-cache, no-transform"
    # Nginx would collect the events into blocks.
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _still_allowed(deps: Deps, caller: Caller) -> Callable[[], bool]:
    """Whether the key is still open: a stream must not outlive it for long."""
    key_id = caller.api_key_id

    def check() -> bool:
        if key_id is None:
            return True
        try:
            return deps.database.read(lambda c: access.get_open(c, key_id)) is not None
        except StoreAwayError:
            # Nothing is told while the database is away; the next comment asks again.
            return True

    return check
