"""Where a job is and what it waits for, in words and in data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, Field

from sluice_api import models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import not_found
from sluice_api.routes.jobs import visible
from sluice_api.workers import read_workers
from sluice_core.adapters.db import explain as store
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.explain import Attempt, Order, Sight, Standing, explain
from sluice_core.domain.states import Status
from sluice_core.domain.view import timestamp

_TAG = Tag(name="jobs", description="Hand in links, follow them, fetch what came of them.")
_Place = Literal["waiting", "in_flight", "absent"]


class ExplainedAttempt(m.AttemptModel):
    publishes: int
    redeliveries: int
    place: _Place | None = Field(description="Of its message now; null while Redis is away.")


class ExplainedMessage(BaseModel):
    """A message that no run has claimed yet."""

    message_id: str
    queue: str
    epoch: int
    due_at: datetime
    published_at: datetime | None
    publishes: int
    place: _Place | None = Field(description="null while Redis is away.")
    position: int | None = Field(description="1 is the next one of its queue.")
    redeliveries: int | None
    worker: str | None = Field(description="Who holds it while it is in flight.")


class Explanation(BaseModel):
    id: str
    status: Status
    waiting_for: Literal["worker", "retry", "time", "children"] | None
    sentences: list[str] = Field(description="For people, the most telling first.")
    broker_reachable: bool
    children: m.ChildrenModel
    attempts: list[ExplainedAttempt]
    messages: list[ExplainedMessage]


@dataclass(frozen=True, slots=True)
class _Live:
    """What Redis knows."""

    #: Message id -> where it is.
    sights: Mapping[str, Sight]
    #: Live workers of the job's stage.
    workers: int


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("explain", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get(
        "/jobs/<string:id>/explain",
        summary="Where a job is and what it waits for",
        responses={200: Explanation},
    )
    def explained(path: m.JobPath) -> Response:
        """Works while Redis is away, and says so."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> Standing | None:
            visible(connection, caller, path.id)
            return store.standing(connection, path.id)

        standing = deps.database.read(work)
        if standing is None:
            not_found("There is no such job.")
        live = _look(deps, standing)
        return jsonify(_view(standing, live, now=deps.clock()))

    return api


def _look(deps: Deps, standing: Standing) -> _Live | None:
    messages = standing.messages
    try:
        sights = deps.broker.sights(messages) if messages else []
        stage = standing.job.stage.value
        workers = sum(w["stage"] == stage for w in read_workers(deps.signals))
    except BrokerAwayError:
        return None
    return _Live({i: s for (_, i), s in zip(messages, sights, strict=True)}, workers)


def _view(standing: Standing, live: _Live | None, *, now: float) -> dict[str, Any]:
    job = standing.job
    sights = live.sights if live else None
    return {
        "id": job.id,
        "status": job.status.value,
        "waiting_for": job.waiting_for.value if job.waiting_for else None,
        "sentences": explain(standing, sights, workers=live.workers if live else None, now=now),
        "broker_reachable": live is not None,
        "children": asdict(standing.children),
        "attempts": [_attempt(a, sights) for a in standing.attempts],
        "messages": [_message(o, sights) for o in standing.orders],
    }


def _attempt(attempt: Attempt, sights: Mapping[str, Sight] | None) -> dict[str, Any]:
    times = ("published_at", "delivered_at", "claimed_at", "ended_at")
    plain = ("stage", "number", "epoch", "worker", "message_id", "queue", "outcome", "publishes")
    error = None
    if attempt.error_code:
        error = {"code": attempt.error_code, "message": attempt.error_message or ""}
    return {
        **{name: getattr(attempt, name) for name in plain},
        **{name: timestamp(getattr(attempt, name)) for name in times},
        "redeliveries": attempt.deliveries - 1,
        "place": sights[attempt.message_id].place if sights is not None else None,
        "error": error,
    }


def _message(order: Order, sights: Mapping[str, Sight] | None) -> dict[str, Any]:
    sight = sights[order.id] if sights is not None else None
    position = sight.before + 1 if sight and sight.before is not None else None
    return {
        "message_id": order.id,
        "queue": order.queue,
        "epoch": order.epoch,
        "due_at": timestamp(order.due_at),
        "published_at": timestamp(order.published_at),
        "publishes": order.publishes,
        "place": sight.place if sight else None,
        "position": position,
        "redeliveries": max(0, sight.handed_out - 1) if sight else None,
        "worker": sight.worker if sight else None,
    }
