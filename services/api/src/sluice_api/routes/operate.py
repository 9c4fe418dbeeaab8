"""Queues and workers: what they do, and steering them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import steer_models as m
from sluice_api import steering as steer
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import not_found
from sluice_api.workers import read_workers
from sluice_core.adapters.db import flow, steering
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.steering import Pause
from sluice_core.domain.job import Job, words_for
from sluice_core.domain.lanes import STAGES, Actor, queues_of
from sluice_core.domain.view import timestamp
from sluice_core.runtime.figures import QueueFigures, read_queues

_TAG = Tag(name="operate", description="What the installation does, and steering it.")

#: Queues that people see and can pause. Settling is left out: it costs nothing, and what is paused
#: would be settled by the scheduler all the same.
QUEUES = tuple(queue for actor in (*STAGES, Actor.NOTIFY) for queue in queues_of(actor))


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("operate", __name__, url_prefix="/v1", abp_tags=[_TAG])
    _add_queues(api, deps)
    _add_workers(api, deps)
    return api


def _add_queues(api: APIBlueprint, deps: Deps) -> None:
    @api.get("/queues", summary="What waits and runs", responses={200: m.QueueList})
    def queues() -> Response:
        """Operators only; 503 when a reading failed, since a failed reading is no zero."""
        need(Scope.OPERATE)
        now = deps.clock()
        found = read_queues(deps.broker, deps.database.read, now=now, queues=QUEUES)
        pauses, flows = deps.database.read(
            lambda c: (steering.paused(c), flow.by_queue(c, now=now))
        )
        shown = [
            _queue(name, of, pauses.get(name), flows.get(name, flow.NONE))
            for name, of in found.items()
        ]
        return jsonify({"queues": shown})

    @api.post(
        "/queues/<string:name>/pause", summary="Hand out nothing", responses={200: m.QueuePaused}
    )
    def pause(path: m.QueuePath) -> Response:
        """Holds over every restart, until resumed; what runs goes on. Twice is once."""
        caller = need(Scope.OPERATE)
        _known(path.name)
        changed = steer.pause(deps, caller, path.name)
        return jsonify({"name": path.name, "paused": True, "changed": changed})

    @api.post(
        "/queues/<string:name>/resume", summary="Hand out again", responses={200: m.QueuePaused}
    )
    def resume(path: m.QueuePath) -> Response:
        """Twice is once."""
        caller = need(Scope.OPERATE)
        _known(path.name)
        changed = steer.resume(deps, caller, path.name)
        return jsonify({"name": path.name, "paused": False, "changed": changed})


def _known(queue: str) -> None:
    if queue not in QUEUES:
        not_found(f"There is no queue {queue}; there are {', '.join(QUEUES)}.")


def _queue(name: str, found: QueueFigures, pause: Pause | None, flows: flow.Flow) -> dict[str, Any]:
    return {
        "name": name,
        "waiting": found.waiting,
        "in_flight": found.in_flight,
        "running": found.running,
        "due": found.due,
        "delayed": found.delayed,
        "dead": found.dead,
        "oldest_age_seconds": found.oldest_age,
        "in_per_minute": flows.came,
        "out_per_minute": flows.left,
        "paused": pause is not None,
        "paused_at": timestamp(pause.paused_at) if pause else None,
        "paused_by": pause.paused_by if pause else None,
    }


def _add_workers(api: APIBlueprint, deps: Deps) -> None:
    @api.get("/workers", summary="Who works", responses={200: m.WorkerList})
    def workers() -> Response:
        """Operators only; a worker that stops saying so is gone from here after 15 s."""
        need(Scope.OPERATE)
        found = read_workers(deps.signals)
        ids = [job_id for worker in found for job_id in worker["jobs"]]

        def work(connection: sa.Connection) -> tuple[dict[str, Job], frozenset[str]]:
            return job_store.get_many(connection, ids), steering.draining(connection)

        jobs, draining = deps.database.read(work)
        shown = [_worker(w, jobs, draining, now=deps.clock()) for w in found]
        return jsonify({"workers": shown})

    @api.post(
        "/workers/<string:id>/drain",
        summary="Take nothing more, then end",
        responses={202: m.WorkerDrained},
    )
    def drain(path: m.WorkerPath) -> Response:
        """What runs goes on to its end, however long; whoever keeps the pool starts another."""
        caller = need(Scope.OPERATE)
        if all(worker["id"] != path.id for worker in read_workers(deps.signals)):
            not_found(f"There is no worker {path.id}, or it has ended.")
        changed = steer.drain(deps, caller, path.id)
        response = jsonify({"id": path.id, "draining": True, "changed": changed})
        response.status_code = 202
        return response


def _worker(
    worker: dict[str, Any], jobs: dict[str, Job], draining: frozenset[str], *, now: float
) -> dict[str, Any]:
    since = worker["since"]
    runs = [jobs[job_id] for job_id in worker["jobs"] if job_id in jobs]
    return {
        **worker,
        "since": timestamp(since),
        "alive_seconds": None if since is None else max(0.0, round(now - since, 1)),
        # Asked a moment ago, it has not said so itself yet.
        "draining": worker["draining"] or worker["id"] in draining,
        "runs": [
            {
                "job_id": job.id,
                "title": job.title,
                "step": words_for(job),
                "percent": job.progress.percent,
            }
            for job in runs
        ],
    }
