"""What could not be done, for a person to look at, send back or drop."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import letter_models as m
from sluice_api.bulk import DoPage, Page, selected, work_off
from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError, not_found
from sluice_api.steering import note
from sluice_core.adapters.db import dead_letters, requeue
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.job import Job
from sluice_core.domain.view import timestamp

_TAG = Tag(name="dead letters", description="What could not be done and waits for a person.")
_UNKNOWN = "There is no such dead letter."


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("dead_letters", __name__, url_prefix="/v1", abp_tags=[_TAG])
    _add_reading(api, deps)
    _add_single(api, deps)
    _add_many(api, deps)
    return api


def _add_reading(api: APIBlueprint, deps: Deps) -> None:
    @api.get(
        "/dead-letters", summary="List dead letters, newest first", responses={200: m.LetterList}
    )
    def list_letters(query: m.LetterQuery) -> Response:
        """Operators only."""
        need(Scope.OPERATE)
        found = deps.database.read(
            lambda c: dead_letters.list_page(
                c,
                dead_letters.Filter(query.queue, query.job, query.reason),
                before_id=query.cursor,
                limit=query.limit + 1,
            )
        )
        page = found[: query.limit]
        following = page[-1].id if len(found) > len(page) else None
        return jsonify({"dead_letters": [_view(x) for x in page], "next_cursor": following})


def _add_single(api: APIBlueprint, deps: Deps) -> None:
    @api.post(
        "/dead-letters/<string:id>/requeue",
        summary="Do it again",
        responses={202: m.LetterRequeued},
    )
    def send_back(path: m.LetterPath) -> Response:
        """Retries the letter's job; 409 when nothing can be done again. The letter goes."""
        caller = need(Scope.OPERATE)
        now = deps.clock()

        def work(connection: sa.Connection) -> tuple[requeue.Requeued, Job | None]:
            done = requeue.requeue(connection, path.id, now=now)
            if done is None:
                not_found(_UNKNOWN)
            note(connection, caller, "letter.requeue", now=now, target=path.id, job=done.job_id)
            return done, job_store.get(connection, done.job_id)

        try:
            done, job = deps.database.write(work)
        except requeue.NotRequeueableError as exc:
            raise ProblemError(409, Code.CONFLICT, str(exc)) from exc
        deps.publisher.send(done.orders, [job] if job else [])
        response = jsonify({"id": path.id, "job_id": done.job_id})
        response.status_code = 202
        return response

    @api.delete(
        "/dead-letters/<string:id>", summary="Drop a dead letter", responses={200: m.LetterDropped}
    )
    def drop(path: m.LetterPath) -> Response:
        """Its job, if any, stays as it is."""
        caller = need(Scope.OPERATE)

        def work(connection: sa.Connection) -> None:
            letter = dead_letters.get(connection, path.id)
            if letter is None or not dead_letters.drop(connection, path.id):
                not_found(_UNKNOWN)
            trail = {"job": letter.job_id, "reason": letter.reason}
            note(connection, caller, "letter.drop", now=deps.clock(), target=path.id, **trail)

        deps.database.write(work)
        return jsonify({"id": path.id, "dropped": True})


def _add_many(api: APIBlueprint, deps: Deps) -> None:
    @api.post("/dead-letters:requeue", summary="Do many again", responses={200: m.LetterBulkResult})
    def requeue_many(body: m.LetterBulkRequest) -> Response:
        """Those that nothing can be done for are refused and stay. Ask again while some remain."""
        caller = need(Scope.OPERATE)

        def do_page(connection: sa.Connection, before: str, size: int) -> Page:
            ids = dead_letters.ids_before(
                connection, _where(body.filter), before_id=before or None, limit=size
            )
            return _requeue(connection, ids, before, now=deps.clock())

        return _work_off(deps, caller, body.filter, do_page, "letters.requeue")

    @api.post("/dead-letters:drop", summary="Drop many", responses={200: m.LetterBulkResult})
    def drop_many(body: m.LetterBulkRequest) -> Response:
        """Their jobs stay as they are."""
        caller = need(Scope.OPERATE)

        def do_page(connection: sa.Connection, before: str, size: int) -> Page:
            ids = dead_letters.ids_before(
                connection, _where(body.filter), before_id=before or None, limit=size
            )
            dropped = dead_letters.drop_many(connection, ids)
            return Page(len(ids), dropped, ids[-1] if ids else before)

        return _work_off(deps, caller, body.filter, do_page, "letters.drop")


def _requeue(connection: sa.Connection, ids: list[str], before: str, *, now: float) -> Page:
    done = 0
    orders: list[OutboxRow] = []
    for letter_id in ids:
        try:
            requeued = requeue.requeue(connection, letter_id, now=now)
        except requeue.NotRequeueableError:
            continue
        if requeued is not None:
            # Its letters go with the job: others of this page may be gone by now.
            done += 1
            orders += requeued.orders
    return Page(len(ids), done, ids[-1] if ids else before, orders)


def _where(asked: m.LetterFilter) -> dead_letters.Filter:
    return dead_letters.Filter(asked.queue, asked.job, asked.reason, asked.ids)


def _work_off(
    deps: Deps, caller: Caller, asked: m.LetterFilter, do_page: DoPage, action: str
) -> Response:
    result = work_off(
        deps,
        caller,
        do_page,
        action=action,
        given=selected(asked, "letters"),
        first="",
        limit=dead_letters.CAP,
        count_rest=lambda c: dead_letters.count(c, _where(asked)),
    )
    return jsonify(result)


def _view(letter: dead_letters.Letter) -> dict[str, Any]:
    return {**asdict(letter), "created_at": timestamp(letter.created_at)}
