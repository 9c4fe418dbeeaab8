"""Submitting, showing and moving jobs."""

from __future__ import annotations

from typing import Any, NoReturn

import sqlalchemy as sa
from flask import Response, jsonify, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import models as m
from sluice_api.batch import place_lines, read_lines, views_of, write_until_won
from sluice_api.bodies import batch_lines
from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_api.prefix import of_request
from sluice_api.problems import Code, ProblemError, not_found
from sluice_api.steering import note
from sluice_api.submit import Accepted, check, place
from sluice_api.views import Shown, gather
from sluice_core.adapters.db import idempotency, listing, moves
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.job import Job
from sluice_core.domain.states import TERMINAL
from sluice_core.domain.view import timestamp

_TAG = Tag(name="jobs", description="Hand in links, follow them, fetch what came of them.")
_UNKNOWN = "There is no such job."


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("jobs", __name__, url_prefix="/v1", abp_tags=[_TAG])
    _add_submitting(api, deps)
    _add_reading(api, deps)
    _add_moving(api, deps)
    return api


def _add_submitting(api: APIBlueprint, deps: Deps) -> None:
    @api.post("/jobs", summary="Hand in a link", responses={202: m.JobModel})
    def submit(header: m.SubmitHeader, body: m.JobRequest) -> Response:
        """Answers at once, with the job's address in `Location`.

        With `Existing-Job: true` when the same request has a job already, and with
        `Idempotent-Replayed: true` when this Idempotency-Key does.
        """
        caller = need(Scope.SUBMIT)
        placed = _submit(deps, caller, body, header.idempotency_key)
        if placed.message:
            deps.publisher.send([placed.message], [placed.job])
        return _submitted(deps, placed)

    @api.post("/jobs:batch", summary="Hand in many links", responses={202: m.BatchResult})
    def submit_batch(header: m.SubmitHeader, raw: m.BatchBody) -> Response:  # noqa: ARG001  # for the document
        """Up to 10,000; each line is accepted or refused by itself. 422 when all are refused."""
        caller = need(Scope.SUBMIT)
        entries = batch_lines(request)
        lines = read_lines(deps, entries, api_key_id=caller.api_key_id, key=header.idempotency_key)
        results = views_of(place_lines(deps, caller, lines))
        refused = sum("error" in r for r in results)
        counts = {"accepted": len(results) - refused, "refused": refused}
        if refused == len(results):
            raise ProblemError(
                422,
                Code.INVALID_REQUEST,
                "Every line was refused.",
                extra={**counts, "results": results},
            )
        return _json({**counts, "results": results}, 202)


def _submit(deps: Deps, caller: Caller, body: m.JobRequest, key: str | None) -> Accepted:
    order = check(
        body, presets=deps.presets, addresses=deps.addresses, api_key_id=caller.api_key_id
    )
    if key is not None:
        order = order.with_key(idempotency.key_of(caller.api_key_id, key))
    now = deps.clock()

    def work(connection: sa.Connection) -> Accepted:
        placed = place(connection, order, now=now, retention=deps.settings.jobs.retention_files)
        deps.backlog.check_room(connection, [placed], caller.quota)
        return placed

    return write_until_won(deps, work)


def _submitted(deps: Deps, placed: Accepted) -> Response:
    shown = Shown(placed.job)
    if placed.existing or placed.replayed:
        shown = deps.database.read(lambda c: gather(c, [placed.job])[0])
    prefix = of_request()
    response = _json(shown.view(prefix=prefix), 202)
    response.headers["Location"] = f"{prefix}/v1/jobs/{placed.job.id}"
    if placed.existing:
        response.headers["Existing-Job"] = "true"
    if placed.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return response


def _add_reading(api: APIBlueprint, deps: Deps) -> None:
    @api.get("/jobs", summary="List jobs, newest first", responses={200: m.JobList})
    def list_jobs(query: m.ListQuery) -> Response:
        caller = need(Scope.READ)
        where = listing.Filter(
            status=query.status or None,
            q=query.q,
            parent_id=None if query.parent in (None, "none") else query.parent,
            roots_only=query.parent == "none",
            preset=query.preset,
            since=query.since,
            api_key_id=caller.only_key,
        )

        def work(connection: sa.Connection) -> list[Shown]:
            page = listing.list_page(
                connection, where, before_id=query.cursor, limit=query.limit + 1
            )
            return gather(connection, page)

        found = deps.database.read(work)
        page = found[: query.limit]
        more = len(found) > len(page)
        return _json({"jobs": _views(deps, page), "next_cursor": page[-1].job.id if more else None})

    @api.get("/jobs/<string:id>", summary="Show a job", responses={200: m.JobModel})
    def show(path: m.JobPath) -> Response:
        caller = need(Scope.READ)
        shown = deps.database.read(lambda c: gather(c, [visible(c, caller, path.id)])[0])
        return _json(_views(deps, [shown])[0])

    @api.get("/jobs/<string:id>/attempts", summary="Runs of a job", responses={200: m.AttemptList})
    def attempts(path: m.JobPath) -> Response:
        """One entry per run of a stage, oldest first, with its message and outcome."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> list[sa.Row[Any]]:
            visible(connection, caller, path.id)
            return job_store.attempts_of(connection, path.id)

        return _json({"attempts": [_attempt(row) for row in deps.database.read(work)]})


def _add_moving(api: APIBlueprint, deps: Deps) -> None:
    @api.post("/jobs/<string:id>/cancel", summary="Cancel a job", responses={202: m.JobModel})
    def cancel(path: m.JobPath) -> Response:
        """Ends it and, of a collection, its children; 409 when it has ended."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> Shown:
            job = visible(connection, caller, path.id)
            canceled = moves.cancel(connection, path.id, now=now)
            if canceled is None:
                _refuse_move(job, "canceled")
            _note_on_another(connection, caller, job, "job.cancel", now)
            return gather(connection, [canceled])[0]

        return _moved(deps, deps.database.write(work))

    @api.post("/jobs/<string:id>/retry", summary="Start again", responses={202: m.JobModel})
    def retry(path: m.JobPath) -> Response:
        """Goes on at the first stage not yet done; of a collection, its failed children only."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> tuple[Shown, Any]:
            job = visible(connection, caller, path.id)
            rows = moves.retry(connection, path.id, now=now)
            if rows is None:
                _refuse_move(job, "retried")
            deps.backlog.check_active(connection, caller.quota)
            _note_on_another(connection, caller, job, "job.retry", now)
            again = visible(connection, caller, path.id)
            return gather(connection, [again])[0], rows

        shown, rows = deps.database.write(work)
        deps.publisher.send(rows, [])
        return _moved(deps, shown)

    @api.delete(
        "/jobs/<string:id>",
        summary="Delete a job and its files",
        responses={202: m.JobDeleted},
    )
    def delete(path: m.JobPath) -> Response:
        """Cancels it first; its children go too."""
        caller = need(Scope.SUBMIT)
        now = deps.clock()

        def work(connection: sa.Connection) -> Job:
            job = visible(connection, caller, path.id)
            moves.delete(connection, path.id, now=now)
            _note_on_another(connection, caller, job, "job.delete", now)
            return job

        gone = deps.database.write(work)
        deps.publisher.send([], [gone])
        return _json({"id": gone.id, "deleted": True}, 202)


def visible(connection: sa.Connection, caller: Caller, job_id: str) -> Job:
    """The job, if the caller may see it.

    Raises:
        ProblemError: 404; nobody learns of other people's jobs.

    """
    job = job_store.get(connection, job_id)
    if job is None or not caller.may_see(job.api_key_id):
        not_found(_UNKNOWN)
    return job


def _note_on_another(
    connection: sa.Connection, caller: Caller, job: Job, action: str, now: float
) -> None:
    """What an operator does to somebody else's job leaves a trail."""
    if job.api_key_id != caller.api_key_id:
        note(connection, caller, action, now=now, target=job.id)


def _refuse_move(job: Job, what: str) -> NoReturn:
    ended = " has ended and" if job.status in TERMINAL else ""
    raise ProblemError(
        409,
        Code.CONFLICT,
        f"The job{ended} is {job.status.value}; it can't be {what}.",
        extra={"job_status": job.status.value},
    )


def _moved(deps: Deps, shown: Shown) -> Response:
    deps.publisher.send([], [shown.job])
    return _json(_views(deps, [shown])[0], 202)


def _views(deps: Deps, shown: list[Shown]) -> list[dict[str, Any]]:
    places = deps.positions.find({s.job.id: s.message for s in shown if s.message})
    return [s.view(places.get(s.job.id), prefix=of_request()) for s in shown]


def _attempt(row: sa.Row[Any]) -> dict[str, Any]:
    r = row._mapping  # noqa: SLF001  # SQLAlchemy's documented way to read by name
    times = ("published_at", "delivered_at", "claimed_at", "ended_at")
    plain = ("stage", "number", "epoch", "worker", "message_id", "queue", "outcome")
    error = None
    if r["error_code"]:
        error = {"code": r["error_code"], "message": r["error_message"]}
    return {**{k: r[k] for k in plain}, **{k: timestamp(r[k]) for k in times}, "error": error}


def _json(body: Any, status: int = 200) -> Response:
    response = jsonify(body)
    response.status_code = status
    return response
