"""Streams of events."""

from __future__ import annotations

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
from sluice_api.events.start import known_from
from sluice_api.events.stream import Stream
from sluice_api.prefix import of_request
from sluice_api.problems import not_found, unavailable
from sluice_core.adapters.db.access import Scope

_TAG = Tag(
    name="events",
    description=(
        "Server-sent events, each with JSON: `job` (the whole job), `progress` (`id`, `status`, "
        "`step`, `progress`, `updated_at`), `deleted` (`id`), and `snapshot` (`jobs`: how many "
        "follow) before jobs that a client can't tell from what it missed. A state may come twice."
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
    def all_events(header: m.EventsHeader, query: m.EventsQuery) -> Response:
        """`Last-Event-ID` resumes: no state change is missed, figures may be skipped."""
        caller = need(Scope.READ)
        ids = frozenset(query.ids.split(",")) if query.ids else None
        return _answer(
            _open(deps, caller, Watch(ids, caller.only_key, prefix=of_request()), header)
        )

    @api.get(
        "/jobs/<string:id>/events",
        summary="Follow one job",
        responses={**_ANSWER, 204: None},
    )
    def job_events(header: m.EventsHeader, path: m.JobPath) -> Response:
        """Ends after the job's end; 204 tells a returning client that there is nothing more."""
        caller = need(Scope.READ)
        watch = Watch(frozenset({path.id}), caller.only_key, ends=True, prefix=of_request())
        stream = _open(deps, caller, watch, header)
        if stream.start.is_missing:
            stream.close()
            not_found("There is no such job.")
        if stream.start.is_over and not stream.start.shown:
            stream.close()
            return Response(status=204)
        return _answer(stream)

    return api


def _open(deps: Deps, caller: Caller, watch: Watch, header: m.EventsHeader) -> Stream:
    if deps.hub.clients >= MAX_CLIENTS or deps.hub.is_closing:
        raise unavailable("All places for streams are taken; try again soon.")
    return Stream(
        hub=deps.hub,
        database=deps.database,
        positions=deps.positions,
        watch=watch,
        known=known_from(header.last_event_id, deps.clock()),
        still_allowed=lambda: deps.open_keys.is_open(caller.api_key_id),
        sock=None if request.method == "HEAD" else request.environ.get("gunicorn.socket"),
        is_chunked=request.environ.get("SERVER_PROTOCOL") == "HTTP/1.1",
    )


def _answer(stream: Stream) -> Response:
    response = Response(iter(stream), content_type="text/event-stream; charset=utf-8")
    response.call_on_close(stream.close)
    response.headers["Cache-Control"] = "no-cache, no-transform"
    # Nginx would collect the events into blocks.
    response.headers["X-Accel-Buffering"] = "no"
    return response
