"""The path that a proxy serves this API under: what it takes off requests comes back in links.

Told by the proxy in `X-Forwarded-Prefix`, e.g. `/sluice`. Whoever makes it up changes the links in
the answer to their own request, and nothing else.
"""

from __future__ import annotations

import re
from typing import Any

from flask import request

HEADER = "X-Forwarded-Prefix"
MAX_LENGTH = 200
_FORM = re.compile(r"(/[A-Za-z0-9._~-]+)+", re.ASCII)


def of_request() -> str:
    """In front of every path of this request's answer; empty at the root."""
    told = request.headers.get(HEADER, "").strip().rstrip("/")
    is_path = len(told) <= MAX_LENGTH and _FORM.fullmatch(told) is not None
    return told if is_path else ""


def under(prefix: str, view: dict[str, Any]) -> dict[str, Any]:
    """A job's view whose links hold below the prefix."""
    if not prefix:
        return view
    links = {name: prefix + path for name, path in view["links"].items()}
    files = [{**file, "url": prefix + file["url"]} for file in view["files"]]
    return {**view, "links": links, "files": files}
