"""Pages, feeds and collections: what stands between a user's link and the media."""

from __future__ import annotations

import posixpath
import secrets
import time
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from . import pages
from .catalog import samples
from .links import Grant
from .reply import status_reply, text_reply

if TYPE_CHECKING:
    import re

    from .reply import Asked, Reply, Sources

#: Items that one page lists at most.
MAX_ITEMS = 20_000


def index(_site: Sources, _asked: Asked, _match: re.Match[str]) -> Reply:
    items = "".join(f"<li>{escape(s.kind)}: {escape(s.url)}</li>" for s in samples())
    return text_reply(pages.page("The sample site", f"<ul>{items}</ul>"))


def video(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    title = asked.params.get("title", "A page with a video")
    languages = [name for name in asked.params.get("subtitles", "").split(",") if name]
    return text_reply(pages.video_page(title, [_media_of(asked)], languages))


def subtitles(_site: Sources, _asked: Asked, match: re.Match[str]) -> Reply:
    return text_reply(pages.subtitles(match[1]), "text/vtt; charset=utf-8")


def open_graph(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    title = asked.params.get("title", "A page with Open Graph tags")
    return text_reply(pages.open_graph_page(title, _absolute(asked, _media_of(asked))))


def titled(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    link = _absolute(asked, asked.params.get("media", "/mp4/small.mp4"))
    return text_reply(pages.open_graph_page(asked.params.get("title", ""), link))


def text(_site: Sources, _asked: Asked, _match: re.Match[str]) -> Reply:
    return text_reply(pages.page("Only text", "<p>nothing to see</p>"))


def signed(site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    params = asked.params
    folder, name = posixpath.split(params.get("media", "/mp4/plain.mp4"))
    bound = params.get("bind", "").split(",")
    nonce = secrets.token_hex(8)
    grant = Grant(
        folder=folder,
        expires=time.time() + float(params["ttl"]) if "ttl" in params else None,
        client=asked.client if "ip" in bound else "",
        cookie=nonce if "cookie" in bound else "",
        stale_status=int(params.get("stale", "403")),
    )
    title = params.get("title", "A page with a signed link")
    link = _with(site.signer.link(grant, name), params.get("with", ""))
    return text_reply(
        pages.video_page(title, [link]), headers=(("Set-Cookie", f"pass={nonce}; Path=/"),)
    )


def mirror(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    seen = asked.cookies.get("member", "nobody")
    return text_reply(pages.video_page(f"Seen: {seen}", [f"/seen/{seen}/small.mp4"]))


def to_keyed(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    """Sends everybody to an address of his own, by his cookie."""
    own = f"/keyed/{asked.cookies.get('member', 'nobody')}/{match[1]}"
    query = f"?{urlencode(asked.params)}" if asked.params else ""
    return status_reply(HTTPStatus.FOUND, headers=(("Location", f"{own}{query}"),))


def videos(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    items = _items(asked, 12)
    title = asked.params.get("title", f"A page with {len(items)} videos")
    return text_reply(pages.video_page(title, [link for _, link in items]))


def collection(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    items = _items(asked, 20)
    title = asked.params.get("title", f"A collection of {len(items)}")
    return text_reply(pages.video_page(title, [link for _, link in items]))


def feed(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    items = _items(asked, 5)
    size = int(asked.params.get("bytes", "0"))
    title = asked.params.get("title", f"A feed of {len(items)}")
    below = f"/keyed/{asked.cookies.get('member')}" if "keyed" in asked.params else ""
    listed = [(name, asked.base + below + link, size) for name, link in items]
    return text_reply(pages.feed(title, listed), "application/rss+xml; charset=utf-8")


def feeds(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    """A feed of feeds: of `/feed` at depth 1, of itself at depth 0."""
    depth = int(asked.params.get("depth", "1"))
    inner = "/feed?n=3" if depth == 1 else f"/feeds?depth={max(0, depth - 1)}"
    items = [(f"Feed number {number}", asked.base + inner, 0) for number in range(1, 4)]
    return text_reply(pages.feed("A feed of feeds", items), "application/rss+xml; charset=utf-8")


def playlist(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    items = [(name, asked.base + link) for name, link in _items(asked, 6)]
    return text_reply(pages.xspf("A playlist", items), "application/xspf+xml")


def _items(asked: Asked, usual: int) -> list[tuple[str, str]]:
    """(title, link) for each item, as the parameters n, same, bad, bytes, below and with say."""
    params = asked.params
    count = min(int(params.get("n", usual)), MAX_ITEMS)
    same = int(params.get("same", "0"))
    bad = {int(number) for number in params.get("bad", "").split(",") if number}
    size = f"bytes={int(params['bytes'])}" if "bytes" in params else ""
    items = []
    for number in range(1, count + 1):
        alike = number <= same
        link = (
            f"{params.get('below', '')}/clips/{number}/{'clip' if alike else f'clip-{number}'}.mp4"
        )
        for query in (size, params.get("with", ""), "fail=404" if number in bad else ""):
            link = _with(link, query)
        items.append(("The same title" if alike else f"Clip number {number}", link))
    return items


def _media_of(asked: Asked) -> str:
    return _with(asked.params.get("media", "/mp4/plain.mp4"), asked.params.get("with", ""))


def _with(link: str, query: str) -> str:
    if not query:
        return link
    return f"{link}{'&' if '?' in link else '?'}{query}"


def _absolute(asked: Asked, link: str) -> str:
    return asked.base + link if link.startswith("/") else link
