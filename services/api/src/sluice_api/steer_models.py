"""What operators ask for and are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sluice_api.models import (
    ID,
    MAX_PAGE,
    MAX_STATES,
    PAGE,
    PARENT,
    Moment,
    StrictModel,
    Text,
)
from sluice_core.domain.states import Status

#: Ids that can be named at once.
MAX_IDS = 1_000


class QueuePath(BaseModel):
    name: Text = Field(max_length=64, description="A queue, e.g. `download.bulk`.")


class QueueModel(BaseModel):
    name: str
    waiting: int
    in_flight: int
    running: int = Field(description="Runs that hold their job, by the database.")
    due: int = Field(description="Due, and not in Redis: not yet handed over, or lost with it.")
    delayed: int = Field(description="To be handed to the broker at a later time.")
    dead: int = Field(description="Dead letters.")
    oldest_age_seconds: float | None
    in_per_minute: int = Field(description="Messages of the last minute.")
    out_per_minute: int = Field(description="Runs that began within the last minute.")
    paused: bool = Field(description="Nothing of it is handed out.")
    paused_at: datetime | None
    paused_by: str | None


class QueueList(BaseModel):
    queues: list[QueueModel]


class QueuePaused(BaseModel):
    name: str
    paused: bool
    changed: bool = Field(description="false: it was so already.")


class WorkerPath(BaseModel):
    id: Text = Field(max_length=128, description="Worker id.")


class RunModel(BaseModel):
    """What a worker does now."""

    job_id: str
    title: str | None
    step: str
    percent: float | None


class WorkerModel(BaseModel):
    id: str
    stage: str
    since: datetime | None
    alive_seconds: float | None
    memory_bytes: int | None = Field(description="Resident memory of the worker itself.")
    versions: dict[str, str]
    draining: bool = Field(description="It takes nothing more, and ends when it is idle.")
    standby: bool = Field(description="It is idle and takes nothing, by the autoscaler's word.")
    jobs: list[str]
    runs: list[RunModel]


class WorkerList(BaseModel):
    workers: list[WorkerModel]


class WorkerDrained(BaseModel):
    id: str
    draining: bool
    changed: bool = Field(description="false: it was asked before.")


class JobFilter(StrictModel):
    """Which jobs; all that are given must fit, and one at least must be given."""

    model_config = ConfigDict(extra="forbid", strict=False)

    ids: list[Text] | None = Field(None, min_length=1, max_length=MAX_IDS)
    status: list[Status] | None = Field(None, min_length=1, max_length=MAX_STATES)
    q: Text | None = Field(None, min_length=1, max_length=200)
    parent: str | None = Field(None, pattern=PARENT)
    preset: Text | None = Field(None, max_length=64)
    error_code: Text | None = Field(None, max_length=32)
    since: Moment | None = Field(None, description="Changed since.")
    all: Literal[True] | None = Field(None, description="Every job, in words: nothing else given.")


class BulkRequest(StrictModel):
    filter: JobFilter
    limit: int = Field(100_000, ge=1, le=100_000, description="Jobs at most.")


class BulkResult(BaseModel):
    """Work ends after two seconds at the latest: ask again while some remain."""

    done: int
    refused: int = Field(description="Had moved on meanwhile.")
    remaining: int = Field(description="Still fit; of more than 100,000, 100,000.")


class AuditQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: Text | None = Field(None, max_length=32, description="E.g. `queue.pause`, or `queue`.")
    key: str | None = Field(None, pattern=ID, description="What this API key did.")
    cursor: str | None = Field(None, pattern=ID)
    limit: int = Field(PAGE, ge=1, le=MAX_PAGE)


class AuditModel(BaseModel):
    id: str
    at: datetime
    actor: str
    api_key_id: str | None
    action: str
    target: str | None
    detail: dict[str, Any] | None


class AuditList(BaseModel):
    entries: list[AuditModel]
    next_cursor: str | None


class KeyPath(BaseModel):
    id: Text = Field(pattern=ID, description="API key id.")


class KeyRequest(StrictModel):
    name: Text = Field(min_length=1, max_length=128)
    scopes: list[Literal["submit", "read", "operate"]] = Field(min_length=1, max_length=3)
    requests_per_minute: int | None = Field(
        None, ge=0, le=1_000_000, description="null: as the settings say; 0: no limit."
    )
    max_active_jobs: int | None = Field(None, ge=0, le=1_000_000, description="As above.")


class KeyModel(BaseModel):
    id: str
    name: str
    scopes: list[str]
    requests_per_minute: int | None
    max_active_jobs: int | None
    created_at: datetime
    revoked_at: datetime | None


class NewKeyModel(KeyModel):
    key: str = Field(description="Shown this once.")


class KeyList(BaseModel):
    keys: list[KeyModel]
