"""The system in figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, Field

from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_api.routes.operate import QUEUES
from sluice_api.workers import read_workers
from sluice_core.adapters import versions
from sluice_core.adapters.db import figures, leases, steering
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.errors import BrokerAwayError, SluiceError
from sluice_core.domain.lanes import STAGES

_TAG = Tag(name="system", description="What the installation does.")


class Leader(BaseModel):
    """Which scheduler fires schedules."""

    holder: str | None = Field(description="null while none leads.")
    fence: int = Field(description="Raised by each change of leader.")
    beat: int = Field(description="Raised while it lives.")


class Stats(BaseModel):
    broker_reachable: bool
    workers: dict[str, int] | None = Field(description="Live workers of each stage.")
    waiting: dict[str, int] | None = Field(description="Messages that wait in each queue.")
    versions: dict[str, list[str]] = Field(
        description="Releases at work, by part; more than one while an update rolls out."
    )
    jobs: dict[str, int] = Field(description="By state; deleted ones are not counted.")
    paused: list[str] = Field(description="Queues of which nothing is handed out.")
    outbox_pending: int
    outbox_lag_seconds: float
    dead_letters: int
    dead_letters_dropped: int = Field(description="Pushed out by newer ones, ever since.")
    leader: Leader
    sse_clients: int
    storage_free_bytes: int | None
    settings: dict[str, str] | None = Field(
        description="This API's, secrets masked; null for who may not operate."
    )


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("stats", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/stats", summary="The system in figures", responses={200: Stats})
    def stats() -> Response:
        """What Redis would tell is null while it is away."""
        caller = need(Scope.READ)
        now = deps.clock()

        def work(connection: sa.Connection) -> dict[str, Any]:
            return {
                **figures.summary(connection, now=now),
                "paused": sorted(steering.paused(connection)),
                "leader": _leader(leases.look(connection, leases.SCHEDULER)),
            }

        known = deps.database.read(work)
        return jsonify(
            {
                **_live(deps),
                **known,
                "sse_clients": deps.hub.clients,
                **_space(deps),
                "settings": _settings(deps, caller),
            }
        )

    return api


def _leader(lease: leases.Lease) -> dict[str, Any]:
    return {"holder": lease.holder or None, "fence": lease.fence, "beat": lease.beat}


def _settings(deps: Deps, caller: Caller) -> dict[str, str] | None:
    return deps.settings.effective() if caller.sees_all else None


def _live(deps: Deps) -> dict[str, Any]:
    own = [versions.of_packages(deps.settings.jobs.ytdlp_path)]
    try:
        waiting = deps.broker.waiting(QUEUES)
        found = read_workers(deps.signals)
    except BrokerAwayError:
        nothing = {"broker_reachable": False, "workers": None, "waiting": None}
        return {**nothing, "versions": _versions(own)}
    stages = Counter(w["stage"] for w in found)
    return {
        "broker_reachable": True,
        "workers": {stage.value: stages.get(stage.value, 0) for stage in STAGES},
        "waiting": waiting,
        "versions": _versions([*own, *(w["versions"] for w in found)]),
    }


def _versions(told: list[dict[str, str]]) -> dict[str, list[str]]:
    parts = sorted({part for one in told for part in one})
    return {part: sorted({one[part] for one in told if part in one}) for part in parts}


def _space(deps: Deps) -> dict[str, int | None]:
    try:
        return {"storage_free_bytes": deps.threads.run(deps.storage.free_bytes)}
    except SluiceError:
        return {"storage_free_bytes": None}
