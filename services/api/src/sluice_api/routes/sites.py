"""What sites are shown: cookies, and names with passwords."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from sluice_api import site_models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError, invalid, not_found
from sluice_api.steering import note
from sluice_api.suffixes import is_public_suffix
from sluice_api.turns import Turns
from sluice_core.adapters.db import sites
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.seal import Sealer, SealError
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.sites import (
    BadLoginError,
    CookieFile,
    Login,
    check_password,
    read_cookies,
    site_host,
)
from sluice_core.domain.view import timestamp

_TAG = Tag(name="sites", description="Cookies and passwords, each for one site; never given back.")


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("sites", __name__, url_prefix="/v1", abp_tags=[_TAG])
    sealer = Sealer(deps.settings.sites.keys)
    _add_reading(api, deps, sealer)
    _add_writing(api, deps, sealer)
    _add_resealing(api, deps, sealer)
    return api


def _add_reading(api: APIBlueprint, deps: Deps, sealer: Sealer) -> None:
    @api.get("/sites", summary="List sites", responses={200: m.SiteList})
    def list_sites() -> Response:
        """Operators only: for which hosts something is kept, and what kinds of things."""
        need(Scope.OPERATE)

        def work(connection: sa.Connection) -> list[dict[str, Any]]:
            # Opened here, in a thread: a thousand of them take a while.
            return [_view(row, sealer) for row in sites.all_sites(connection)]

        return jsonify({"sites": deps.database.read(work)})

    @api.get("/sites/<string:host>", summary="Show a site", responses={200: m.SiteModel})
    def show(path: m.SitePath) -> Response:
        """As in the list."""
        need(Scope.OPERATE)
        host = _host(path.host)
        found = deps.database.read(lambda c: sites.of_hosts(c, [host]))
        if not found:
            not_found(f"Nothing is kept for {host}.")
        return jsonify(_view(found[0], sealer))


def _add_writing(api: APIBlueprint, deps: Deps, sealer: Sealer) -> None:
    @api.post("/sites", summary="Keep what a site is shown", responses={200: m.SiteWritten})
    def put(body: m.SiteRequest) -> Response:
        """Cookies, a password, or both, in place of all that was kept for the host."""
        caller = need(Scope.OPERATE)
        now = deps.clock()
        login, file = _read(body, now)
        try:
            sealed = sealer.seal(login.dumps())
        except SealError as exc:
            raise ProblemError(
                409, Code.CONFLICT, "Nothing can be kept without SLUICE_SITE_SECRETS_KEY."
            ) from exc
        new = sites.Kept(
            host=login.host,
            sealed=sealed,
            cookies=len(file.cookies),
            expires_at=file.expires_at,
            password=login.password is not None,
            created_at=now,
            updated_at=now,
        )

        def work(connection: sa.Connection) -> sites.Kept:
            kinds = {"cookies": new.cookies, "password": new.password}
            note(connection, caller, "site.set", now=now, target=new.host, **kinds)
            return sites.put(connection, new)

        try:
            written = deps.database.write(work)
        except ConfigError as exc:
            raise ProblemError(409, Code.CONFLICT, str(exc)) from exc
        left_out = {"foreign": file.foreign, "expired": file.expired}
        return jsonify({**_view(written, sealer), **left_out})

    @api.delete("/sites/<string:host>", summary="Forget a site", responses={200: m.SiteRemoved})
    def remove(path: m.SitePath) -> Response:
        """Holds from the next page or file that is fetched."""
        caller = need(Scope.OPERATE)
        host, now = _host(path.host), deps.clock()

        def work(connection: sa.Connection) -> None:
            if not sites.remove(connection, host):
                not_found(f"Nothing is kept for {host}.")
            note(connection, caller, "site.remove", now=now, target=host)

        deps.database.write(work)
        return jsonify({"host": host, "removed": True})


def _add_resealing(api: APIBlueprint, deps: Deps, sealer: Sealer) -> None:
    @api.post("/sites:reseal", summary="Change the key", responses={200: m.SitesResealed})
    def reseal() -> Response:
        """Seal everything with the first key of the setting; older ones can then be taken away."""
        caller = need(Scope.OPERATE)
        now = deps.clock()

        def work(connection: sa.Connection) -> dict[str, Any]:
            done, unreadable = 0, []
            for row in sites.all_sites(connection):
                try:
                    new = sealer.reseal(row.sealed)
                except SealError:
                    unreadable.append(row.host)
                else:
                    done += sites.reseal(connection, row.host, old=row.sealed, new=new)
            note(connection, caller, "site.reseal", now=now, done=done, unreadable=len(unreadable))
            return {"done": done, "unreadable": unreadable}

        return jsonify(deps.database.write(work))


def _read(body: m.SiteRequest, now: float) -> tuple[Login, CookieFile]:
    """What was handed in, checked."""
    host = _host(body.host)
    if is_public_suffix(host):
        invalid(f"host: Anybody may have a site below {host}; name one of them.")
    if body.cookies is None and body.username is None and body.password is None:
        invalid("Give cookies, or a user name and a password, or both.")
    file = CookieFile(())
    try:
        check_password(body.username, body.password)
        if body.cookies is not None:
            file = read_cookies(body.cookies, host, now=now, between=Turns().give)
    except BadLoginError as exc:
        invalid(f"{_sentence(exc)}.")
    text = file.text if file.cookies else None
    return Login(host, text, body.username, body.password), file


def _host(text: str) -> str:
    try:
        return site_host(text)
    except BadLoginError as exc:
        invalid(f"host: {_sentence(exc)}.")


def _sentence(exc: BadLoginError) -> str:
    text = str(exc)
    return text[:1].upper() + text[1:]


def _view(row: sites.Kept, sealer: Sealer) -> dict[str, Any]:
    return {
        "host": row.host,
        "cookies": row.cookies,
        "expires_at": timestamp(row.expires_at),
        "password": row.password,
        "readable": _opens(sealer, row.sealed),
        "created_at": timestamp(row.created_at),
        "updated_at": timestamp(row.updated_at),
        "used_at": timestamp(row.used_at),
    }


def _opens(sealer: Sealer, sealed: str) -> bool:
    try:
        sealer.open(sealed)
    except SealError:
        return False
    return True
