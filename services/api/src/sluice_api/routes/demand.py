"""What a pool has to do: KEDA scales by it, and the autoscaler by the same figure."""

from __future__ import annotations

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, Field

from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import invalid, not_found
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.lanes import LANES, STAGES, Actor, Lane, queue_name
from sluice_core.runtime.demand import read_demand

_TAG = Tag(name="operate", description="What the installation does, and steering it.")

#: By stage, and by the name of the service that runs it.
_POOLS = {stage.value: stage for stage in STAGES} | {
    "parser": Actor.PARSE,
    "downloader": Actor.DOWNLOAD,
    "transcoder": Actor.TRANSCODE,
}


class DemandQuery(BaseModel):
    pool: str = Field(description="A stage, or the service that runs it.")
    lanes: str = Field("", description="Comma-separated; left out: all of them.")


class DemandModel(BaseModel):
    pool: str
    demand: int = Field(description="All of the others: messages that want a slot or have one.")
    waiting: int = Field(description="In the broker, fetched by nobody; paused lanes left out.")
    due: int = Field(description="Due by the database, and not in the broker.")
    running: int = Field(description="With a worker.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("demand", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/demand", summary="What a pool has to do", responses={200: DemandModel})
    def demand(query: DemandQuery) -> Response:
        """503 when a reading failed: whoever scales by this must hold, not go to zero."""
        need(Scope.READ)
        found = read_demand(deps.broker, deps.database.read, _queues(query), now=deps.clock())
        return jsonify(
            {
                "pool": query.pool,
                "demand": found.total,
                "waiting": found.waiting,
                "due": found.due,
                "running": found.running,
            }
        )

    return api


def _queues(query: DemandQuery) -> list[str]:
    stage = _POOLS.get(query.pool)
    if stage is None:
        not_found(f"There is no pool '{query.pool}'; there are {', '.join(sorted(_POOLS))}.")
    named = {part.strip() for part in query.lanes.split(",") if part.strip()}
    unknown = named - set(LANES)
    if unknown:
        invalid(f"There is no lane '{min(unknown)}'; there are {', '.join(LANES)}.")
    return [queue_name(stage, Lane(lane)) for lane in LANES if not named or lane in named]
