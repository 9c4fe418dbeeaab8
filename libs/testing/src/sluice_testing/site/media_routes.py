"""Media that is not a plain file of a recipe: padded, renamed, cut, endless lists, redirects."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from . import pages
from .bodies import BytesBody
from .reply import HLS, NoSuchPathError, media_reply, status_reply, text_reply

if TYPE_CHECKING:
    from .reply import Asked, Reply, Sources

_CLIP_PADDING = 1024
_MAX_SEGMENTS = 20_000
_LIVE_WINDOW = 4


def clip(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    usual = site.file("/mp4/small.mp4").size + _CLIP_PADDING
    size = int(asked.params.get("bytes", usual))
    return media_reply(site.padded(size, seed=int(match[1])), asked.path)


def big(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    return media_reply(site.padded(int(match[1])), asked.path)


def named(site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    return media_reply(site.file("/mp4/small.mp4"), asked.path)


def seen(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    if match[1] != asked.cookies.get("member"):
        raise NoSuchPathError(asked.path)
    return media_reply(site.file("/mp4/small.mp4"), asked.path)


def many_segments(_site: Sources, _asked: Asked, match: re.Match[str]) -> Reply:
    links = [_segment(index) for index in range(min(int(match[1]), _MAX_SEGMENTS))]
    return text_reply(pages.hls_playlist(links), HLS)


def live(site: Sources, _asked: Asked, _match: re.Match[str]) -> Reply:
    first = int(time.time() - site.started)
    links = [_segment(index) for index in range(first, first + _LIVE_WINDOW)]
    return text_reply(pages.hls_playlist(links, sequence=first, ended=False), HLS)


def broken(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    if match[1] == "empty":
        return media_reply(BytesBody(b""), asked.path)
    if match[1] == "html":
        html = pages.page("Please log in", "<p>This is not a video.</p>" * 400)
        return media_reply(BytesBody(html.encode()), asked.path)
    # The index of the one lies at its end and is lost; that of the other survives the cut.
    whole = site.file("/mp4/late-index.mp4" if match[1] == "truncated" else "/mp4/small.mp4")
    return media_reply(replace(whole, limit=whole.size // 2), asked.path)


def with_hole(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    """A folder of segments of one second, without the third ones."""
    folder, name = {"hls": "/hls/ts/", "dash": "/dash/"}[match[1]], match[2]
    if re.fullmatch(r"v\d-002\.ts|part-\d-003\.m4s", name):
        raise NoSuchPathError(asked.path)
    return media_reply(site.file(folder + name), asked.path)


def redirect_loop(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    # A changing query, as clients notice a loop over one address sooner.
    turn = int(asked.params.get("turn", "0")) + 1
    return _found(f"/redirect/loop?turn={turn}")


def redirect_chain(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    left = int(match[1])
    if left < 1:
        raise NoSuchPathError(asked.path)
    target = asked.params.get("to", "/mp4/plain.mp4")
    return _found(f"/redirect/{left - 1}?to={quote(target, safe='')}" if left > 1 else target)


def _found(location: str) -> Reply:
    return status_reply(HTTPStatus.FOUND, headers=(("Location", location),))


def _segment(index: int) -> str:
    return f"/hls/ts/v0-{index % 4:03d}.ts?i={index}"
