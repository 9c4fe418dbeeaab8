"""A browser's session: a cookie that stands for an API key and does not hold it.

The cookie names the key and is signed with what the database keeps of it. There is nothing to
store, a revoked key ends all of its sessions, and no script of any page can read it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from flask import Request, Response

from sluice_api.problems import Code, ProblemError
from sluice_core.adapters.db.access import ApiKey

COOKIE = "sluice_session"
#: Seconds until somebody has to sign in again.
LIFE = 7 * 86_400
#: A page elsewhere can't set a header on a request that needs no permission of ours.
PAGE_HEADER = "Sluice-Page"

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a cookie says, before anybody looked whether it is true."""

    key_id: str
    expires_at: int
    signature: str


def read_cookie(request: Request, *, now: float) -> Claimed | None:
    """What the request's cookie says; None without one, or with one that is over."""
    key_id, _, rest = request.cookies.get(COOKIE, "").partition(".")
    expires_at, _, signature = rest.partition(".")
    # Signs more digits than any year needs would only make work.
    if not (expires_at.isascii() and expires_at.isdigit() and len(expires_at) < 12):  # noqa: PLR2004
        return None
    claimed = Claimed(key_id[:26], int(expires_at), signature)
    return claimed if now <= claimed.expires_at <= now + LIFE + 1 else None


def is_genuine(claimed: Claimed, key: ApiKey) -> bool:
    """Whether the cookie was made by us for this key."""
    expected = _signature(key, claimed.expires_at)
    return hmac.compare_digest(expected.encode(), claimed.signature.encode())


def begin(response: Response, key: ApiKey, request: Request, *, now: float) -> int:
    """Put a cookie on the answer; returns when it is over, Unix seconds."""
    expires_at = int(now) + LIFE
    response.set_cookie(
        COOKIE,
        f"{key.id}.{expires_at}.{_signature(key, expires_at)}",
        max_age=LIFE,
        path=_path(request),
        secure=_is_https(request),
        httponly=True,
        samesite="Strict",
    )
    return expires_at


def end(response: Response, request: Request) -> None:
    """Take the cookie away."""
    response.delete_cookie(
        COOKIE,
        path=_path(request),
        secure=_is_https(request),
        httponly=True,
        samesite="Strict",
    )


def refuse_foreign(request: Request) -> None:
    """Browsers send the cookie along by themselves, so a change must be asked for by our page.

    Raises:
        ProblemError: 403.

    """
    if request.method in _SAFE_METHODS:
        return
    foreign = request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
    if foreign or PAGE_HEADER not in request.headers:
        raise ProblemError(
            403,
            Code.FORBIDDEN,
            f"With a session, changes need the header {PAGE_HEADER}, which pages elsewhere can't"
            " send; with a key, send Authorization: Bearer.",
        )


def _path(request: Request) -> str:
    return f"{request.script_root}/"


def _is_https(request: Request) -> bool:
    # Only ever makes the cookie stricter, so whoever sends the header harms nobody else.
    return request.is_secure or request.headers.get("X-Forwarded-Proto") == "https"


def _signature(key: ApiKey, expires_at: int) -> str:
    text = f"session\n{key.id}\n{expires_at}".encode()
    return hmac.new(key.hash.encode(), text, hashlib.sha256).hexdigest()
