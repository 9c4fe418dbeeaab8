"""Tells a browser under which name to keep a file, whatever script the name is written in."""

from __future__ import annotations

from urllib.parse import quote

#: What RFC 5987 allows unescaped in an extended value.
_ATTR_CHARS = "!#$&+-.^_`|~"


def attachment(name: str) -> str:
    """A `Content-Disposition` value (RFC 6266), ASCII only and free of control characters.

    The plain form is for old clients; all others take the extended one, which is exact.
    """
    plain = "".join(c if " " <= c <= "~" and c not in '"\\%' else "_" for c in name)
    exact = quote(name, safe=_ATTR_CHARS, errors="replace")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}"
