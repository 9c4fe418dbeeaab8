"""Finished files: whole or in parts, to keep or to play."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from flask import Response, jsonify, redirect, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from werkzeug.wrappers import Response as BaseResponse

from sluice_api import models as m
from sluice_api.caller import TICKET_LIFE, Caller, make_ticket, need
from sluice_api.deps import Deps
from sluice_api.prefix import of_request
from sluice_api.problems import not_found
from sluice_api.routes.jobs import visible
from sluice_api.stored import StoredFile
from sluice_core.adapters.db import access, details
from sluice_core.adapters.db.access import Scope
from sluice_core.domain.disposition import attachment
from sluice_core.domain.job import Artifact
from sluice_core.domain.view import file_view, timestamp

_TAG = Tag(name="files", description="What came of the jobs.")

#: May be shown by a browser itself. Not SVG, which can carry scripts.
_PLAYED = ("audio/", "video/", "image/")
_ACTIVE = ("image/svg+xml",)


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("files", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get(
        "/jobs/<string:id>/files/<string:name>",
        summary="Fetch a file",
        responses={200: {"content": {"application/octet-stream": {}}}, 206: None, 416: None},
    )
    def fetch(path: m.FilePath, query: m.FileQuery) -> BaseResponse:
        """With ranges and ETag; on some storages a redirect to where the file lies."""
        caller = need(Scope.READ)
        file = deps.database.read(lambda c: _find(c, caller, path))
        inline = query.inline == "1" and _may_show(file.content_type)
        link = deps.storage.presigned(
            file.key, name=file.name, content_type=file.content_type, seconds=TICKET_LIFE
        )
        if link is not None and not inline:
            return redirect(link, 302)
        return _serve(deps, file, inline=inline)

    @api.post(
        "/jobs/<string:id>/files/<string:name>/link",
        summary="A link that works without a key",
        responses={200: m.FileLink},
    )
    def link(path: m.FilePath) -> Response:
        """For a browser's own player and downloads, which send no key; holds six hours."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> tuple[Artifact, access.ApiKey | None]:
            file = _find(connection, caller, path)
            key_id = caller.api_key_id
            return file, access.get_open(connection, key_id) if key_id else None

        file, key = deps.database.read(work)
        expires_at = int(deps.clock()) + TICKET_LIFE
        url = of_request() + file_view(path.id, file)["url"]
        if key is not None:
            signed_path = f"/v1/jobs/{path.id}/files/{file.name}"
            url = f"{url}?ticket={make_ticket(key, signed_path, expires_at)}"
        return jsonify({"url": url, "expires_at": timestamp(expires_at)})

    return api


def _find(connection: sa.Connection, caller: Caller, path: m.FilePath) -> Artifact:
    visible(connection, caller, path.id)
    for file in details.files_of(connection, [path.id]).get(path.id, ()):
        if file.name == path.name:
            return file
    return not_found("The job has no such file.")


def _may_show(content_type: str) -> bool:
    return content_type.startswith(_PLAYED) and not content_type.startswith(_ACTIVE)


def _serve(deps: Deps, file: Artifact, *, inline: bool) -> Response:
    stat = deps.threads.run(lambda: deps.storage.stat(file.key))
    if stat is None:
        not_found("The file is no longer stored.")
    body = StoredFile(deps.storage, file.key, deps.threads)
    response = Response(body, content_type=file.content_type, direct_passthrough=True)
    disposition = attachment(file.name)
    response.headers["Content-Disposition"] = (
        disposition.replace("attachment", "inline", 1) if inline else disposition
    )
    # The file comes from a stranger: it must not become a page of ours.
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(file.sha256)
    response.last_modified = datetime.fromtimestamp(int(stat.modified_at), UTC)
    response.content_length = stat.bytes
    environ = dict(request.environ)
    if _is_multiple(environ.get("HTTP_RANGE", "")):
        # Many parts at once are an option of the protocol that no player needs: send the whole.
        del environ["HTTP_RANGE"]
    response.make_conditional(environ, accept_ranges=True, complete_length=stat.bytes)
    return response


def _is_multiple(ranges: str) -> bool:
    return "," in ranges
