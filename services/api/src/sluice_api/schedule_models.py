"""What requests and answers on schedules and subscriptions look like."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from sluice_api.models import (
    ID,
    MAX_URL,
    JobRequest,
    Language,
    Moment,
    Places,
    Priority,
    StrictModel,
    Text,
)
from sluice_core.domain.schedule import MAX_EVERY, MIN_EVERY

Name = Annotated[Text, Field(min_length=1, max_length=128, description="Unique.")]


class TriggerRequest(StrictModel):
    """When to fire: `cron` or `every_seconds`."""

    cron: Text | None = Field(
        None,
        max_length=128,
        description="Minute, hour, day of month, month, day of week.",
        examples=["30 2 * * *"],
    )
    timezone: Text | None = Field(
        None,
        max_length=64,
        description="Of the cron expression; SLUICE_TIMEZONE by default.",
        examples=["Europe/Berlin"],
    )
    every_seconds: float | None = Field(
        None, ge=MIN_EVERY, le=MAX_EVERY, description="Between two firings, instead of cron."
    )
    anchor: Moment | None = Field(
        None, description="A firing of the interval falls on this time; by default the first one."
    )
    missed: Literal["skip", "once"] | None = Field(
        None,
        description="After times at which no scheduler ran: wait for the next one, or fire once.",
    )
    enabled: bool | None = None


class ScheduleRequest(TriggerRequest):
    """A job to be submitted again and again."""

    name: Name
    job: JobRequest


class ScheduleChange(TriggerRequest):
    """What is left out stays as it is; of a built-in task only its time can be changed."""

    name: Name | None = None
    job: JobRequest | None = None


class _EntryRequest(StrictModel):
    preset: Text = Field("best", max_length=64, description="For each entry.")
    priority: Priority = Field("default", description="Entries go to bulk by default.")
    items: Places | None = Field(None, description="Places of the list to look at.")
    subtitles: list[Language] = Field(default_factory=list, max_length=32)
    allow_gaps: bool = Field(default=False, description="As of a job.")


class SubscriptionRequest(TriggerRequest, _EntryRequest):
    """A channel, playlist or feed whose new entries become jobs; looked at hourly by default."""

    url: Text = Field(max_length=MAX_URL, description="Of the list.")
    name: Name | None = Field(None, description="The link by default.")
    backfill: bool = Field(
        default=False, description="Entries that are there from the start become jobs too."
    )

    def job_request(self) -> JobRequest:
        """The request of a check, and of what it finds."""
        names = ("url", "preset", "priority", "items", "subtitles", "allow_gaps")
        return JobRequest(**{name: getattr(self, name) for name in names})


class SubscriptionChange(TriggerRequest):
    """What is left out stays as it is."""

    name: Name | None = None
    preset: Text | None = Field(None, max_length=64)


class SchedulePath(BaseModel):
    id: Text = Field(pattern=ID, description="Schedule or subscription id.")


class Moments(BaseModel):
    """One planned time, twice."""

    utc: datetime
    local: str = Field(description="In the schedule's zone, with its offset.")


class FiringModel(BaseModel):
    planned_at: datetime
    fired_at: datetime
    ended_at: datetime | None
    outcome: Literal["ok", "failed", "overlap", "missed", "lost"] | None = Field(
        description="null while a built-in task runs."
    )
    job_id: str | None
    message: str | None


class FiringList(BaseModel):
    firings: list[FiringModel]


class ScheduleModel(BaseModel):
    id: str
    name: str
    kind: Literal["submit", "builtin", "subscription"]
    enabled: bool
    cron: str | None
    timezone: str
    every_seconds: float | None
    anchor: datetime | None
    missed: Literal["skip", "once"]
    next: list[Moments] = Field(description="The next three firings.")
    last: FiringModel | None
    help: str | None = Field(description="What a built-in task does.")
    job: dict[str, Any] | None = Field(description="What is asked for each time.")
    created_at: datetime
    updated_at: datetime


class ScheduleList(BaseModel):
    schedules: list[ScheduleModel]


class SubscriptionModel(ScheduleModel):
    url: str
    preset: str
    backfill: bool
    entries_seen: int


class SubscriptionList(BaseModel):
    subscriptions: list[SubscriptionModel]


class ScheduleDeleted(BaseModel):
    id: str
    deleted: bool
