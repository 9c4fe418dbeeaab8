"""From a path to what a healthy site answers."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from . import hostile, media_routes, page_routes
from .reply import Asked, Reply, Sources, media_reply, status_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    _Route = Callable[[Sources, Asked, re.Match[str]], Reply]

#: Value of the cookie `member`, without which nothing below `/members` is given out.
MEMBER = "a-member-of-the-sample-site"
#: Name and password of everything below `/vault`.
KEEPER = ("keeper", "the-vault-of-the-sample-site")


def answer(site: Sources, asked: Asked) -> Reply:
    """What a healthy site sends.

    Raises:
        NoSuchPathError: nothing is there.
        ValueError: a parameter has the wrong form.
    """
    for pattern, route in _ROUTES:
        if (match := pattern.fullmatch(asked.path)) is not None:
            return route(site, asked, match)
    return media_reply(site.file(asked.path), asked.path)


def answer_link(site: Sources, link: str) -> Reply:
    """The answer to a path with its query, as a plain client gets it."""
    parts = urlsplit(link)
    asked = Asked(path=unquote(parts.path), params=dict(parse_qsl(parts.query)))
    return answer(site, asked)


def changed(path: str) -> str:
    """Where other content is found that takes the place of a path's own."""
    if (big := re.fullmatch(r"/big/(\d+)\.mp4", path)) is not None:
        return f"/big/{int(big[1]) + 4096}.mp4"
    if (clip := re.fullmatch(r"/clips/(\d+)/(.+)", path, re.DOTALL)) is not None:
        return f"/clips/{int(clip[1]) + 1_000_000}/{clip[2]}"
    return "/mp4/second.mp4"


def _signed(site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    read = site.signer.read(asked.path)
    if read is None:
        return status_reply(HTTPStatus.FORBIDDEN)
    grant, target = read
    if not grant.allows(client=asked.client, cookie=asked.cookies.get("pass", ""), now=time.time()):
        return status_reply(grant.stale_status)
    return answer(site, replace(asked, path=target))


def _members(site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    if asked.cookies.get("member") != MEMBER:
        return status_reply(HTTPStatus.FORBIDDEN)
    return answer(site, replace(asked, path=asked.path.removeprefix("/members")))


def _keyed(site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    if asked.cookies.get("member") != match[1]:
        return status_reply(HTTPStatus.FORBIDDEN)
    return answer(site, replace(asked, path=f"/{match[2]}"))


def _vault(site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    pair = b64encode(":".join(KEEPER).encode()).decode()
    if asked.authorization != f"Basic {pair}":
        challenge = ("WWW-Authenticate", 'Basic realm="vault"')
        return status_reply(HTTPStatus.UNAUTHORIZED, headers=(challenge,))
    return answer(site, replace(asked, path=asked.path.removeprefix("/vault")))


def _table(*rows: tuple[str, _Route]) -> tuple[tuple[re.Pattern[str], _Route], ...]:
    return tuple((re.compile(pattern, re.DOTALL), route) for pattern, route in rows)


_ROUTES = _table(
    (r"/", page_routes.index),
    (r"/pages/video", page_routes.video),
    (r"/subtitles/([A-Za-z_-]{1,16})\.vtt", page_routes.subtitles),
    (r"/pages/og", page_routes.open_graph),
    (r"/pages/titled", page_routes.titled),
    (r"/pages/text", page_routes.text),
    (r"/pages/signed", page_routes.signed),
    (r"/pages/videos", page_routes.videos),
    (r"/collection", page_routes.collection),
    (r"/feed", page_routes.feed),
    (r"/feeds", page_routes.feeds),
    (r"/playlist\.xspf", page_routes.playlist),
    (r"/pages/mirror", page_routes.mirror),
    (r"/signed/.+", _signed),
    (r"/members/.+", _members),
    (r"/pages/keyed/(.+)", page_routes.to_keyed),
    (r"/keyed/([^/]+)/(.+)", _keyed),
    (r"/vault/.+", _vault),
    (r"/clips/(\d{1,12})/.+\.mp4", media_routes.clip),
    (r"/big/(\d{1,15})\.mp4", media_routes.big),
    (r"/named/.+", media_routes.named),
    (r"/seen/([^/]+)/small\.mp4", media_routes.seen),
    (r"/hls/many/(\d{1,6})\.m3u8", media_routes.many_segments),
    (r"/hls/live\.m3u8", media_routes.live),
    (r"/broken/(truncated|cut|empty|html)\.mp4", media_routes.broken),
    (r"/broken/(hls|dash)/([\w.-]+)", media_routes.with_hole),
    (r"/redirect/loop", media_routes.redirect_loop),
    (r"/redirect/(\d{1,3})", media_routes.redirect_chain),
    (r"/hostile/hls-(private|file)\.m3u8", hostile.hls),
    (r"/hostile/key-(private|file)\.m3u8", hostile.hls_key),
    (r"/hostile/master-(private|file)\.m3u8", hostile.hls_master),
    (r"/hostile/dash-(private|file)\.mpd", hostile.dash),
    (r"/hostile/page-(private|file)", hostile.page),
    (r"/hostile/drm\.m3u8", hostile.drm_hls),
    (r"/hostile/drm\.mpd", hostile.drm_dash),
    (r"/hostile/bomb", hostile.bomb),
    (r"/hostile/endless\.(html|mp4)", hostile.endless),
)
