"""Telling a web page from media by its first bytes; servers' content types are often wrong."""

from __future__ import annotations

import re

#: Bytes that are enough to tell.
SNIFF = 1024

_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|script|title|h1)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_page(start: bytes) -> bool:
    """Whether a file that starts so is an HTML page."""
    return _PAGE.match(start[:SNIFF]) is not None
