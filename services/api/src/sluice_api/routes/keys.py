"""API keys: who may come in."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import steer_models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError, not_found
from sluice_api.steering import note
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import ApiKey, KeyLimits, Scope
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.view import timestamp

_TAG = Tag(name="operate", description="What the installation does, and steering it.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("keys", __name__, url_prefix="/v1/keys", abp_tags=[_TAG])

    @api.get("", summary="List API keys, oldest first", responses={200: m.KeyList})
    def list_keys() -> Response:
        """Operators only; without their texts, which nobody can get back."""
        need(Scope.OPERATE)
        found = deps.database.read(access.list_keys)
        return jsonify({"keys": [_view(key) for key in found]})

    @api.post("", summary="Make an API key", responses={201: m.NewKeyModel})
    def create(body: m.KeyRequest) -> Response:
        """Its text is in this answer and nowhere else."""
        caller = need(Scope.OPERATE)
        now = deps.clock()

        def work(connection: sa.Connection) -> tuple[str, ApiKey]:
            text, key = access.create(
                connection,
                name=body.name,
                scopes=[Scope(scope) for scope in body.scopes],
                now=now,
                limits=KeyLimits(body.requests_per_minute, body.max_active_jobs),
            )
            note(
                connection,
                caller,
                "key.create",
                now=now,
                target=key.id,
                name=key.name,
                scopes=sorted(key.scopes),
            )
            return text, key

        try:
            text, key = deps.database.write(work)
        except ConfigError as exc:
            raise ProblemError(409, Code.CONFLICT, str(exc)) from exc
        response = jsonify({**_view(key), "key": text})
        response.status_code = 201
        return response

    @api.delete("/<string:id>", summary="Revoke an API key", responses={200: m.KeyModel})
    def revoke(path: m.KeyPath) -> Response:
        """For good; its sessions and tickets end with it."""
        caller = need(Scope.OPERATE)
        now = deps.clock()

        def work(connection: sa.Connection) -> ApiKey:
            key = access.get_open(connection, path.id)
            if key is None or not access.revoke(connection, path.id, now=now):
                not_found("There is no such open key.")
            note(connection, caller, "key.revoke", now=now, target=key.id, name=key.name)
            return key

        return jsonify({**_view(deps.database.write(work)), "revoked_at": timestamp(now)})

    return api


def _view(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "requests_per_minute": key.limits.requests_per_minute,
        "max_active_jobs": key.limits.max_active_jobs,
        "created_at": timestamp(key.created_at),
        "revoked_at": timestamp(key.revoked_at),
    }
