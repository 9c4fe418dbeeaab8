"""Playlists as they are sent: what let the caller in is carried on to the files that they name.

A player follows the links of a playlist by itself, relative to where the playlist came from. So a
playlist comes from the API in any case, never by a redirect to a storage elsewhere; and a ticket,
which is good for one file, is written anew behind each link.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: The largest playlist that is rewritten, in bytes: a hundred hours of segments.
MAX_BYTES = 4 * 1024 * 1024

_URI = re.compile(r'(?<=[:,]URI=")[^"]*(?=")')


def carry(text: str, query: Callable[[str], str]) -> str:
    """The playlist with a query behind each link.

    Args:
        text: any playlist (RFC 8216).
        query: what goes behind a link, `?` included; empty for nothing.

    """
    return "".join(f"{_carried(line, query)}\n" for line in text.splitlines())


def _carried(line: str, query: Callable[[str], str]) -> str:
    if line.startswith("#"):
        return _URI.sub(lambda found: found[0] + query(found[0]), line)
    return line + query(line) if line else line
