"""What requests for dead letters and their answers look like."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sluice_api.models import ID, MAX_PAGE, PAGE, StrictModel, Text
from sluice_api.steer_models import MAX_IDS, BulkResult


class LetterPath(BaseModel):
    id: Text = Field(pattern=ID, description="Dead letter id.")


class LetterQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queue: Text | None = Field(
        None, max_length=64, description="A queue, e.g. `download.bulk`, or a stage."
    )
    job: str | None = Field(None, pattern=ID, description="Letters of this job.")
    reason: Text | None = Field(
        None, min_length=1, max_length=100, description="Start of the reason, e.g. an error code."
    )
    cursor: str | None = Field(None, pattern=ID, description="`next_cursor` of the page before.")
    limit: int = Field(PAGE, ge=1, le=MAX_PAGE)


class LetterModel(BaseModel):
    id: str
    queue: str
    job_id: str | None = Field(description="null when the message could not be read.")
    reason: str
    payload: str = Field(description="The message as it came, cut at 2,000 characters.")
    created_at: datetime


class LetterList(BaseModel):
    dead_letters: list[LetterModel]
    next_cursor: str | None


class LetterRequeued(BaseModel):
    id: str
    job_id: str


class LetterDropped(BaseModel):
    id: str
    dropped: bool


class LetterFilter(StrictModel):
    ids: list[Text] | None = Field(None, min_length=1, max_length=MAX_IDS)
    queue: Text | None = Field(None, max_length=64, description="A queue, or a stage.")
    job: Text | None = Field(None, pattern=ID)
    reason: Text | None = Field(
        None, min_length=1, max_length=100, description="Start of the reason, e.g. an error code."
    )
    all: Literal[True] | None = Field(None, description="Every letter: nothing else given.")


class LetterBulkRequest(StrictModel):
    filter: LetterFilter


class LetterBulkResult(BulkResult):
    refused: int = Field(description="Nothing can be done again for these; they stay.")
