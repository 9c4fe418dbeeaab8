"""Rows become the domain's values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import jobs
from sluice_core.domain.gaps import Gap
from sluice_core.domain.job import Artifact, Job, JobError, Progress, Request
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.members import members
from sluice_core.domain.states import Status, WaitingFor

_OWN_COLUMNS = ("url", "preset", "lane")
#: What a request may say without a column of its own -> what it says when it says nothing.
_OPTIONS = {
    field.name: getattr(Request(url=""), field.name)
    for field in fields(Request)
    if field.name not in _OWN_COLUMNS
}

#: Columns of `jobs` that an insert leaves out.
_UNWRITTEN = {
    c.name: int(str(c.server_default.arg))
    if isinstance(c.server_default, sa.DefaultClause)
    else None
    for c in jobs.c
}


def to_job(row: sa.Row[Any]) -> Job:
    return _of_columns(row._mapping)  # noqa: SLF001  # SQLAlchemy's documented way to read by name


def new_job(written: Mapping[str, Any]) -> Job:
    """The job of a row as it was inserted, its text mended, which needs not be read back."""
    return _of_columns({**_UNWRITTEN, **written})


def _of_columns(r: Mapping[str, Any] | sa.RowMapping) -> Job:
    options = r["options"]
    error = None
    if r["error_code"]:
        error = JobError(r["error_code"], r["error_class"], r["error_message"])
    return Job(
        id=r["id"],
        request=Request(
            url=r["url"],
            preset=r["preset"],
            lane=Lane(r["lane"]),
            playlist=options.get("playlist", "auto"),
            items=options.get("items"),
            subtitles=tuple(options.get("subtitles", ())),
            allow_gaps=options.get("allow_gaps", False),
            not_before=options.get("not_before"),
            callback_url=options.get("callback_url"),
            metadata=options.get("metadata", {}),
        ),
        status=Status(r["status"]),
        stage=Actor(r["stage"]),
        epoch=r["epoch"],
        version=r["version"],
        waiting_for=WaitingFor(r["waiting_for"]) if r["waiting_for"] else None,
        tries=r["tries"],
        losses=r["losses"],
        progress=Progress(
            r["percent"], r["bytes"], r["total_bytes"], r["bytes_per_second"], r["eta_seconds"]
        ),
        created_at=r["created_at"],
        updated_at=r["updated_at"],
        api_key_id=r["api_key_id"],
        parent_id=r["parent_id"],
        schedule_id=r["schedule_id"],
        entry=r["entry"],
        expansion_done=r["expansion_done"],
        retry_at=r["retry_at"],
        title=r["title"],
        extractor=r["extractor"],
        duration=r["duration"],
        thumbnail=r["thumbnail"],
        plan=r["plan"],
        sources=r["sources"],
        error=error,
        gaps=tuple(Gap.from_json(gap) for gap in r["gaps"] or ()),
        finished_at=r["finished_at"],
        expires_at=r["expires_at"],
        traceparent=r["traceparent"],
        wanted_at=r["wanted_at"],
    )


def options_of(request: Request) -> dict[str, Any]:
    """The `options` column: what has no column of its own, defaults left out."""
    values = {name: getattr(request, name) for name in _OPTIONS}
    return {name: value for name, value in values.items() if value != _OPTIONS[name]}


def progress_columns(progress: Progress) -> dict[str, Any]:
    return members(progress)


def error_columns(error: JobError | None) -> dict[str, Any]:
    return {
        "error_code": error.code if error else None,
        "error_class": error.error_class if error else None,
        "error_message": error.message if error else None,
    }


def to_artifact(row: sa.Row[Any]) -> Artifact:
    r = row._mapping  # noqa: SLF001  # as above
    return Artifact(r["name"], r["kind"], r["key"], r["bytes"], r["sha256"], r["content_type"])


def next_version() -> dict[str, Any]:
    """Every write raises the version: events of one job are ordered by it."""
    return {"version": jobs.c.version + 1}
