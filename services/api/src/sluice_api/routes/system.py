"""Queues, workers, presets, figures and health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from sqlalchemy.exc import SQLAlchemyError

from sluice_api import models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.workers import read_workers
from sluice_core.adapters.db import figures
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.redis import call
from sluice_core.domain.errors import BrokerAwayError, ConfigError, SluiceError, StoreAwayError
from sluice_core.domain.lanes import STAGES, queues_of
from sluice_core.domain.view import timestamp
from sluice_core.runtime.figures import QueueFigures, read_queues

_TAG = Tag(name="system", description="What the installation does.")
_QUEUES = tuple(queue for actor in STAGES for queue in queues_of(actor))


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("system", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/presets", summary="What can be asked for", responses={200: m.PresetList})
    def presets() -> Response:
        need(Scope.READ)
        shown = [
            {"name": p.name, "title": p.title, "kind": p.kind.value} for p in deps.presets.values()
        ]
        return jsonify({"presets": shown, "default": "best"})

    @api.get("/queues", summary="What waits and runs", responses={200: m.QueueList})
    def queues() -> Response:
        """Operators only; 503 when a reading failed, since a failed reading is no zero."""
        need(Scope.OPERATE)
        found = read_queues(deps.broker, deps.database.read, now=deps.clock(), queues=_QUEUES)
        return jsonify({"queues": [_queue(name, of) for name, of in found.items()]})

    @api.get("/workers", summary="Who works", responses={200: m.WorkerList})
    def workers() -> Response:
        """Operators only; a worker that stops saying so is gone from here after 15 s."""
        need(Scope.OPERATE)
        shown = [{**w, "since": timestamp(w["since"])} for w in read_workers(deps.signals)]
        return jsonify({"workers": shown})

    @api.get("/stats", summary="The system in figures", responses={200: m.Stats})
    def stats() -> Response:
        """What Redis would tell is null while it is away."""
        need(Scope.READ)
        now = deps.clock()
        known = deps.database.read(lambda c: figures.summary(c, now=now))
        return jsonify({**_live(deps), **known, "sse_clients": deps.hub.clients, **_space(deps)})

    return api


def _queue(name: str, found: QueueFigures) -> dict[str, Any]:
    return {
        "name": name,
        "waiting": found.waiting,
        "in_flight": found.in_flight,
        "due": found.due,
        "delayed": found.delayed,
        "dead": found.dead,
        "oldest_age_seconds": found.oldest_age,
    }


def _live(deps: Deps) -> dict[str, Any]:
    try:
        waiting = deps.broker.waiting(_QUEUES)
        stages = Counter(w["stage"] for w in read_workers(deps.signals))
    except BrokerAwayError:
        return {"broker_reachable": False, "workers": None, "waiting": None}
    workers = {stage.value: stages.get(stage.value, 0) for stage in STAGES}
    return {"broker_reachable": True, "workers": workers, "waiting": waiting}


def _space(deps: Deps) -> dict[str, int | None]:
    try:
        return {"storage_free_bytes": deps.threads.run(deps.storage.free_bytes)}
    except SluiceError:
        return {"storage_free_bytes": None}


def build_health(deps: Deps) -> APIBlueprint:
    """Outside `/v1`: for probes, which have no key."""
    api = APIBlueprint("health", __name__, abp_tags=[_TAG])

    @api.get("/livez", summary="The process answers", responses={200: m.Health})
    def livez() -> Response:
        return jsonify({"ok": True, "parts": {}})

    @api.get("/readyz", summary="Its stores answer", responses={200: m.Health, 503: m.Health})
    def readyz() -> Response:
        parts = {
            "database": _told(lambda: deps.database.read(_read_something)),
            "redis": _told(lambda: _ping(deps)),
            "storage": _told(lambda: deps.threads.run(deps.storage.check)),
        }
        ok = all(words == "ok" for words in parts.values())
        response = jsonify({"ok": ok, "parts": parts})
        response.status_code = 200 if ok else 503
        return response

    return api


def _told(check: Callable[[], object]) -> str:
    """`ok`, or one sentence on what is wrong with a store."""
    try:
        check()
    except (StoreAwayError, BrokerAwayError, ConfigError) as exc:
        return str(exc) or "away"
    except SQLAlchemyError:
        return "The database has no tables yet; run `sluice migrate` first."
    return "ok"


def _ping(deps: Deps) -> None:
    with call():
        deps.signals.ping()


def _read_something(connection: sa.Connection) -> None:
    # Also shows whether the tables are there.
    job_store.get(connection, "")
