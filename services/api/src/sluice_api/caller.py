"""Who sends a request, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from flask import Flask, g, request

from sluice_api import session
from sluice_api.backlog import Quota
from sluice_api.deps import Deps
from sluice_api.problems import Code, ProblemError
from sluice_api.throttle import own_limit
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import ApiKey, Scope
from sluice_core.adapters.db.audit import ANYBODY as ANYBODY_NAME
from sluice_core.domain.egress import is_loopback

#: Seconds that a link to a file works without a key: long enough for a long film with pauses.
TICKET_LIFE = 6 * 3600

#: Under `/v1` and yet open to everybody.
OPEN_ENDPOINTS = frozenset({"session.sign_in", "session.sign_out"})

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent the request."""

    api_key_id: str | None = None
    scopes: frozenset[Scope] = field(default_factory=lambda: frozenset(Scope))
    #: Of the key, for the audit trail.
    name: str = ANYBODY_NAME
    #: Jobs that it may have under way; 0 is no limit.
    max_active_jobs: int = 0

    @property
    def sees_all(self) -> bool:
        """Whether other people's jobs are visible too."""
        return Scope.OPERATE in self.scopes

    @property
    def only_key(self) -> str | None:
        """The key whose jobs alone are visible; None for all."""
        return None if self.sees_all else self.api_key_id

    @property
    def quota(self) -> Quota:
        return Quota(self.api_key_id, self.max_active_jobs)

    def may_see(self, api_key_id: str | None) -> bool:
        return self.sees_all or api_key_id == self.api_key_id


#: On loopback without keys everybody is the operator.
ANYBODY = Caller()


def need(scope: Scope) -> Caller:
    """The request's caller, who must have the scope; every handler under `/v1` asks first.

    Raises:
        ProblemError: 403 without the scope.

    """
    caller: Caller = g.caller
    if scope not in caller.scopes and Scope.OPERATE not in caller.scopes:
        raise ProblemError(403, Code.FORBIDDEN, f"This key lacks the scope {scope.value}.")
    return caller


def install(app: Flask, deps: Deps) -> None:
    """Refuse strangers before any handler runs."""
    http = deps.settings.http
    required = http.keys_required
    is_local = is_loopback(http.http_host)

    @app.before_request
    def _identify() -> None:
        if not required:
            _refuse_foreign_pages(local_only=is_local)
        if request.path.startswith("/v1/") and request.endpoint not in OPEN_ENDPOINTS:
            g.caller = _caller(deps, required=required)


def _caller(deps: Deps, *, required: bool) -> Caller:
    key = _by_header(deps)
    if key is None:
        if not required:
            return ANYBODY
        key = _by_session(deps)
    if key is not None:
        deps.throttle.check(key)
        return _of(deps, key, key.scopes)
    key = _by_ticket(deps)
    if key is None:
        _unauthorized("An API key is needed: Authorization: Bearer <key>.")
    return _of(deps, key, key.scopes & {Scope.READ, Scope.OPERATE})


def _of(deps: Deps, key: ApiKey, scopes: frozenset[Scope]) -> Caller:
    most = own_limit(key, key.limits.max_active_jobs, deps.settings.http.key_max_active_jobs)
    return Caller(key.id, scopes, key.name, most)


def _by_header(deps: Deps) -> ApiKey | None:
    """The key that the request carries; None without one."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        return None
    key = deps.database.read(lambda c: access.lookup(c, text.strip()))
    if key is None:
        _unauthorized("This API key is not known, or was revoked.")
    return key


def _by_session(deps: Deps) -> ApiKey | None:
    """The key that a browser signed in with."""
    claimed = session.read_cookie(request, now=deps.clock())
    if claimed is None:
        return None
    key = deps.database.read(lambda c: access.get_open(c, claimed.key_id))
    if key is None or not session.is_genuine(claimed, key):
        return None
    session.refuse_foreign(request)
    return key


def _unauthorized(detail: str) -> NoReturn:
    raise ProblemError(401, Code.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})


def make_ticket(key: ApiKey, path: str, expires_at: int) -> str:
    """Lets whoever holds it fetch one file until then: a browser's player sends no key."""
    return f"{key.id}.{expires_at}.{_signature(key, path, expires_at)}"


def ticket_maker(deps: Deps) -> Callable[[str], str] | None:
    """Makes tickets that hold as long as this request's; None when it came without a good one.

    The maker takes a path, as `make_ticket` does.
    """
    key = _by_ticket(deps)
    if key is None:
        return None
    expires_at = int(request.args["ticket"].split(".")[1])
    return lambda path: make_ticket(key, path, expires_at)


def _by_ticket(deps: Deps) -> ApiKey | None:
    """The key that signed this request's ticket."""
    ticket = request.args.get("ticket", "")
    key_id, _, rest = ticket.partition(".")
    expires_at, _, signature = rest.partition(".")
    if "/files/" not in request.path or request.method not in _SAFE_METHODS:
        return None
    # Signs more digits than any year needs would only make work.
    if not (expires_at.isascii() and expires_at.isdigit() and len(expires_at) < 12):  # noqa: PLR2004
        return None
    key = deps.database.read(lambda c: access.get_open(c, key_id[:26]))
    if key is None or int(expires_at) < deps.clock():
        return None
    expected = _signature(key, request.path, int(expires_at))
    return key if hmac.compare_digest(expected.encode(), signature.encode()) else None


def _signature(key: ApiKey, path: str, expires_at: int) -> str:
    # The hash never leaves the database, so it serves as the secret; a revoked key signs nothing.
    text = f"ticket\n{path}\n{expires_at}".encode()
    return hmac.new(key.hash.encode(), text, hashlib.sha256).hexdigest()


def _refuse_foreign_pages(*, local_only: bool) -> None:
    """Without keys the browser is the only guard: no other site's page may get through it.

    A name that leads here by a DNS trick shows in `Host`; a form or script elsewhere in `Origin`.
    """
    host = request.headers.get("Host", "")
    if local_only and not is_loopback(_name_of(host)):
        raise ProblemError(403, Code.FORBIDDEN, "This address answers to loopback names only.")
    if request.method in _SAFE_METHODS:
        return
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    if foreign or request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise ProblemError(403, Code.FORBIDDEN, "Requests from other sites' pages are refused.")


def _name_of(host: str) -> str:
    """The header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
