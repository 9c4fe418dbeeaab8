"""Media links that hold only for a client, a cookie or a time, as real sites give them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """What a signed link allows: files of one URL folder, under conditions."""

    folder: str
    #: `time.time()` after which the link is stale; None for never.
    expires: float | None = None
    #: Client address that it is bound to; empty for any.
    client: str = ""
    #: Cookie value that must come along; empty for none.
    cookie: str = ""
    #: Status of the refusal.
    stale_status: int = 403

    def allows(self, *, client: str, cookie: str, now: float) -> bool:
        in_time = self.expires is None or now <= self.expires
        return in_time and self.client in {"", client} and self.cookie in {"", cookie}


class Signer:
    """Writes and reads tokens.

    Args:
        secret: key of the signature; tokens of another one are refused.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def link(self, grant: Grant, name: str) -> str:
        """URL path of a file of the grant's folder."""
        fields = [grant.folder, grant.expires, grant.client, grant.cookie, grant.stale_status]
        token = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
        return f"/signed/{token}.{self._mac(token)}/{name}"

    def read(self, path: str) -> tuple[Grant, str] | None:
        """The grant of a signed path and the path that it stands for; None when forged."""
        token, _, name = path.removeprefix("/signed/").partition("/")
        body, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            return None
        try:
            fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            return None
        grant = Grant(*fields)
        target = posixpath.normpath(posixpath.join(grant.folder, name))
        return (grant, target) if target.startswith(grant.folder.rstrip("/") + "/") else None

    def _mac(self, token: str) -> str:
        return hmac.new(self._secret, token.encode(), hashlib.sha256).hexdigest()[:32]
