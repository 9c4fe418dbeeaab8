"""Signing in and out, for the page."""

from __future__ import annotations

from datetime import datetime

from flask import Response, g, jsonify, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, Field

from sluice_api import session
from sluice_api.caller import OPEN_ENDPOINTS, Caller
from sluice_api.deps import Deps
from sluice_api.models import StrictModel, Text
from sluice_api.problems import Code, ProblemError
from sluice_core.adapters.db import access
from sluice_core.domain.view import timestamp

_TAG = Tag(name="session", description="A browser's session, kept in a cookie.")


class SignIn(StrictModel):
    key: Text = Field(min_length=1, max_length=256, description="The API key.")


class SessionModel(BaseModel):
    name: str
    scopes: list[str]
    expires_at: datetime | None = Field(description="null without a cookie.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("session", __name__, url_prefix="/v1/session", abp_tags=[_TAG])

    @api.post("", summary="Sign in", responses={200: SessionModel}, security=[])
    def sign_in(body: SignIn) -> Response:
        """Gives a cookie that no script can read, good for a week or until the key is revoked."""
        now = deps.clock()
        key = deps.database.read(lambda c: access.lookup(c, body.key))
        if key is None:
            raise ProblemError(401, Code.UNAUTHORIZED, "This API key is not known, or was revoked.")
        response = Response(content_type="application/json")
        expires_at = session.begin(response, key, request, now=now)
        shown = {
            "name": key.name,
            "scopes": sorted(key.scopes),
            "expires_at": timestamp(expires_at),
        }
        response.data = jsonify(shown).data
        return response

    @api.get("", summary="Who I am", responses={200: SessionModel})
    def show() -> Response:
        caller: Caller = g.caller
        claimed = session.read_cookie(request, now=deps.clock())
        shown = {
            "name": caller.name,
            "scopes": sorted(caller.scopes),
            "expires_at": timestamp(claimed.expires_at) if claimed else None,
        }
        return jsonify(shown)

    @api.delete("", summary="Sign out", responses={200: SessionModel}, security=[])
    def sign_out() -> Response:
        """Takes the cookie away; needs none."""
        response = jsonify({"name": "", "scopes": [], "expires_at": None})
        session.end(response, request)
        return response

    assert {"session.sign_in", "session.sign_out"} == OPEN_ENDPOINTS  # noqa: S101
    return api
