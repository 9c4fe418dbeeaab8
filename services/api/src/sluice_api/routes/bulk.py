"""Canceling and retrying many jobs at once."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import steer_models as m
from sluice_api.bulk import MAX_COUNT, DoPage, Page, selected, work_off
from sluice_api.caller import Caller, need
from sluice_api.deps import Deps
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db import listing, moves
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.listing import Filter
from sluice_core.domain.states import ACTIVE, RETRYABLE, Status

_TAG = Tag(name="jobs", description="Hand in links, follow them, fetch what came of them.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("bulk", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.post("/jobs:cancel", summary="Cancel many", responses={200: m.BulkResult})
    def cancel(body: m.BulkRequest) -> Response:
        """Of those that fit, all that have not ended. Ask again while some remain."""
        caller = need(Scope.SUBMIT)
        given = selected(body.filter, "jobs")
        where = _where(body.filter, caller, ACTIVE)

        def do_page(connection: sa.Connection, after: str, size: int) -> Page:
            ids = listing.ids_after(connection, where, after_id=after, limit=size)
            canceled = moves.cancel_many(connection, ids, now=deps.clock())
            return Page(len(ids), len(canceled), ids[-1] if ids else after, jobs=canceled)

        return _answer(
            deps, caller, body, where=where, do_page=do_page, action="jobs.cancel", given=given
        )

    @api.post("/jobs:retry", summary="Start many again", responses={200: m.BulkResult})
    def retry(body: m.BulkRequest) -> Response:
        """Of those that fit, all that failed, were canceled, or are done in part only."""
        caller = need(Scope.SUBMIT)
        given = selected(body.filter, "jobs")
        where = _where(body.filter, caller, RETRYABLE)

        def do_page(connection: sa.Connection, after: str, size: int) -> Page:
            ids = listing.ids_after(connection, where, after_id=after, limit=size)
            return _retry(deps, caller, connection, ids, after)

        return _answer(
            deps, caller, body, where=where, do_page=do_page, action="jobs.retry", given=given
        )

    return api


def _retry(
    deps: Deps, caller: Caller, connection: sa.Connection, ids: list[str], after: str
) -> Page:
    done, orders = 0, []
    for job_id in ids:
        rows = moves.retry(connection, job_id, now=deps.clock())
        if rows is not None:
            done += 1
            orders += rows
    deps.backlog.check_active(connection, caller.quota)
    again = list(job_store.get_many(connection, ids).values())
    return Page(len(ids), done, ids[-1] if ids else after, orders, again)


def _answer(
    deps: Deps,
    caller: Caller,
    body: m.BulkRequest,
    *,
    where: Filter,
    do_page: DoPage,
    action: str,
    given: dict[str, Any],
) -> Response:
    if not where.status:
        # None of the states that were named is one from which this move leads.
        return jsonify({"done": 0, "refused": 0, "remaining": 0})
    result = work_off(
        deps,
        caller,
        do_page,
        action=action,
        given=given,
        first="",
        limit=body.limit,
        count_rest=lambda c: listing.count(c, where, cap=MAX_COUNT),
    )
    return jsonify(result)


def _where(asked: m.JobFilter, caller: Caller, movable: frozenset[Status]) -> Filter:
    wanted = movable if asked.status is None else movable & set(asked.status)
    return Filter(
        status=sorted(wanted),
        q=asked.q,
        parent_id=None if asked.parent in (None, "none") else asked.parent,
        roots_only=asked.parent == "none",
        preset=asked.preset,
        ids=asked.ids,
        error_code=asked.error_code,
        since=asked.since,
        api_key_id=caller.only_key,
    )
