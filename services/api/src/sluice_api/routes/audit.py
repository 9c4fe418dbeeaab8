"""Who did what and when."""

from __future__ import annotations

from dataclasses import asdict

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import steer_models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_core.adapters.db import audit
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.view import timestamp

_TAG = Tag(name="operate", description="What the installation does, and steering it.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("audit", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/audit", summary="What operators did, newest first", responses={200: m.AuditList})
    def entries(query: m.AuditQuery) -> Response:
        """Operators only; the newest 10,000 are kept."""
        need(Scope.OPERATE)
        found = deps.database.read(
            lambda c: audit.list_page(
                c,
                before_id=query.cursor,
                limit=query.limit + 1,
                action=query.action,
                api_key_id=query.key,
            )
        )
        page = found[: query.limit]
        shown = [{**asdict(entry), "at": timestamp(entry.at)} for entry in page]
        following = page[-1].id if len(found) > len(page) else None
        return jsonify({"entries": shown, "next_cursor": following})

    return api
