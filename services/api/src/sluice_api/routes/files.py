"""Finished files: whole or in parts, to keep or to play."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import urlencode

import sqlalchemy as sa
import structlog
from flask import Response, jsonify, redirect, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from werkzeug.wrappers import Response as BaseResponse

from sluice_api import models as m
from sluice_api import playlists
from sluice_api.caller import TICKET_LIFE, Caller, make_ticket, need, ticket_maker
from sluice_api.deps import Deps
from sluice_api.prefix import of_request
from sluice_api.problems import not_found
from sluice_api.routes.jobs import visible
from sluice_api.stored import StoredFile
from sluice_core.adapters.db import access, details
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.storage import Stat
from sluice_core.domain.disposition import attachment
from sluice_core.domain.job import PLAYLIST, Artifact
from sluice_core.domain.view import file_view, timestamp

log = structlog.get_logger(__name__)

_TAG = Tag(name="files", description="What came of the jobs.")

#: May be shown by a browser itself. Not SVG, which can carry scripts.
_PLAYED = ("audio/", "video/", "image/", "application/vnd.apple.mpegurl")
_ACTIVE = ("image/svg+xml",)


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("files", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get(
        "/jobs/<string:id>/files/<string:name>",
        summary="Fetch a file",
        responses={
            200: {"content": {"application/octet-stream": {}}},
            206: None,
            302: None,
            304: None,
            416: None,
        },
    )
    def fetch(path: m.FilePath, query: m.FileQuery) -> BaseResponse:
        """With ranges and ETag; on some storages a redirect to where the file lies.

        A playlist comes from here in any case: its links lead to the files beside it. Asked for
        with a ticket or `inline`, it has the same behind each of its links.
        """
        caller = need(Scope.READ)
        files = deps.database.read(lambda c: _files(c, caller, path))
        file = _named(files, path.name)
        inline = query.inline == "1" and _may_show(file.content_type)
        if file.kind == PLAYLIST:
            behind = _carried(deps, path.id, files, inline=inline)
            if behind is not None and file.bytes <= playlists.MAX_BYTES:
                return _serve_playlist(deps, path.id, file, behind, inline=inline)
            return _serve(deps, path.id, file, inline=inline)
        link = deps.storage.presigned(
            file.key, name=file.name, content_type=file.content_type, seconds=TICKET_LIFE
        )
        if link is not None and not inline:
            _whole(deps, path.id, file)
            return redirect(link, 302)
        return _serve(deps, path.id, file, inline=inline)

    @api.post(
        "/jobs/<string:id>/files/<string:name>/link",
        summary="A link that works without a key",
        responses={200: m.FileLink},
    )
    def link(path: m.FilePath) -> Response:
        """For a browser's own player and downloads, which send no key; holds six hours."""
        caller = need(Scope.READ)

        def work(connection: sa.Connection) -> tuple[Artifact, access.ApiKey | None]:
            file = _named(_files(connection, caller, path), path.name)
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


def _files(connection: sa.Connection, caller: Caller, path: m.FilePath) -> Mapping[str, Artifact]:
    """All files of the job, by name."""
    visible(connection, caller, path.id)
    files = details.files_of(connection, [path.id]).get(path.id, ())
    return {file.name: file for file in files}


def _named(files: Mapping[str, Artifact], name: str) -> Artifact:
    return files.get(name) or not_found("The job has no such file.")


def _may_show(content_type: str) -> bool:
    return content_type.startswith(_PLAYED) and not content_type.startswith(_ACTIVE)


def _carried(
    deps: Deps, job_id: str, files: Container[str], *, inline: bool
) -> Callable[[str], str] | None:
    """What goes behind a playlist's links to files of the same job; None when nothing does."""
    ticket = ticket_maker(deps)
    if ticket is None and not inline:
        return None

    def query(name: str) -> str:
        if name not in files:
            return ""
        words = {"inline": "1"} if inline else {}
        if ticket is not None:
            words["ticket"] = ticket(f"/v1/jobs/{job_id}/files/{name}")
        return f"?{urlencode(words)}"

    return query


def _serve_playlist(
    deps: Deps, job_id: str, file: Artifact, query: Callable[[str], str], *, inline: bool
) -> Response:
    """One whose links are written anew."""
    _whole(deps, job_id, file)
    stored = deps.threads.run(lambda: b"".join(deps.storage.read(file.key)))
    body = playlists.carry(stored.decode(), query).encode()
    response = Response(body, content_type=file.content_type)
    _head(response, file, inline=inline)
    response.set_etag(hashlib.sha256(body).hexdigest())
    response.make_conditional(request)
    return response


def _whole(deps: Deps, job_id: str, file: Artifact) -> Stat:
    """What is stored of a file that is as long as it was when it was done.

    Raises:
        ProblemError: 404, somebody removed or cut it. Whoever hands in the same link again gets a
            new job from then on, not this one.

    """
    stat = deps.threads.run(lambda: deps.storage.stat(file.key))
    if stat is None or stat.bytes != file.bytes:
        _give_up(deps, job_id, file, None if stat is None else stat.bytes)
    return stat


def _give_up(deps: Deps, job_id: str, file: Artifact, found: int | None) -> NoReturn:
    log.error("stored_file_lost", job=job_id, name=file.name, bytes=file.bytes, found=found)
    deps.database.write(lambda c: job_store.let_go(c, job_id))
    what = "no longer stored" if found is None else f"damaged: {found} of {file.bytes} bytes"
    not_found(f"The file is {what}. Hand in the link again to have it fetched anew.")


def _serve(deps: Deps, job_id: str, file: Artifact, *, inline: bool) -> Response:
    stat = _whole(deps, job_id, file)
    body = StoredFile(deps.storage, file.key, deps.threads)
    response = Response(body, content_type=file.content_type, direct_passthrough=True)
    _head(response, file, inline=inline)
    response.set_etag(file.sha256)
    response.last_modified = datetime.fromtimestamp(int(stat.modified_at), UTC)
    response.content_length = stat.bytes
    environ = dict(request.environ)
    if _is_multiple(environ.get("HTTP_RANGE", "")):
        # Many parts at once are an option of the protocol that no player needs: send the whole.
        del environ["HTTP_RANGE"]
    response.make_conditional(environ, accept_ranges=True, complete_length=stat.bytes)
    return response


def _head(response: Response, file: Artifact, *, inline: bool) -> None:
    disposition = attachment(file.name)
    response.headers["Content-Disposition"] = (
        disposition.replace("attachment", "inline", 1) if inline else disposition
    )
    # The file comes from a stranger: it must not become a page of ours.
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["Cache-Control"] = "private, no-cache"


def _is_multiple(ranges: str) -> bool:
    return "," in ranges
