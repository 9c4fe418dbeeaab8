"""From a link to what is behind it: one media, or the entries of a collection as they are found."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_dlp.utils import YoutubeDLError  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.describe import entry_event, slim
from sluice_core.adapters.ytdlp.landing import Landing
from sluice_core.adapters.ytdlp.login import SiteLogin
from sluice_core.adapters.ytdlp.options import Network, base_params, extract_params
from sluice_core.adapters.ytdlp.ydl import Downloader
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.items import Items
from sluice_core.domain.names import plain_title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Emit = Callable[[dict[str, Any]], None]
    Info = dict[str, Any]

#: Links that lead to links; more hops than this are a circle.
_MAX_HOPS = 10
_CIRCLE = "the link leads in a circle"

#: Lists within lists that are opened: a channel has tabs, and nobody's tabs have tabs.
_MAX_DEPTH = 2

_LIST_TYPES = frozenset({"playlist", "multi_video"})

#: Entries of a collection unless the request says otherwise.
MAX_ENTRIES = 10_000


def extract(request: dict[str, Any], emit: Emit) -> None:
    """Do a request of kind `extract`, see the package's docstring."""
    network = Network.from_request(request)
    params = base_params(Path.cwd(), network) | extract_params(request)
    with Downloader(params, login=SiteLogin.from_request(request)) as ydl:
        landing = Landing(ydl, request.get("sites") or ())
        try:
            found = _resolve(ydl, request["url"])
        except (SluiceError, YoutubeDLError):
            if not landing.found:
                raise
        if landing.found:
            emit({"event": "elsewhere", "sites": landing.found})
        elif found.get("_type") in _LIST_TYPES:
            _collection(ydl, found, request, emit)
        else:
            emit(media_event(describe_media(ydl, found, item=None)))


def describe_media(ydl: Downloader, found: Info, *, item: int | None) -> Info:
    """Choose formats, refuse what can't be fetched, and return the description to keep.

    Raises:
        SluiceError: it is live or will be, or nothing of it can be fetched.
    """
    _refuse_live(found)
    info = ydl.process_ie_result(found, download=False)
    if not info:
        raise SluiceError(code="no_media")
    _refuse_live(info)
    return slim(ydl.sanitize_info(info), item=item)


def media_event(info: Info) -> Info:
    return {"event": "media", "info": info}


def find_media(ydl: Downloader, url: str, item: int | None) -> Info:
    """Extract again what a stored description came from.

    Raises:
        SluiceError: `gone`, the page has no such entry any more.
    """
    found = _resolve(ydl, url)
    if found.get("_type") not in _LIST_TYPES:
        return found
    media, _ = _nth(ydl, found, item or 1)
    return media


def _resolve(ydl: Downloader, url: str) -> Info:
    """Follow links to links, up to a media or a collection."""
    found = _extract_once(ydl, url, None)
    for _ in range(_MAX_HOPS):
        kind = found.get("_type")
        if kind == "url":
            found = _extract_once(ydl, found["url"], found.get("ie_key"))
        elif kind == "url_transparent":
            # Takes titles and the like along; the library alone knows which.
            found = ydl.process_ie_result(found, download=False) or {}
            return found | {"_processed": True}
        else:
            return found
    raise SluiceError(_CIRCLE, code="unsupported_url")


def _extract_once(ydl: Downloader, url: str, ie_key: str | None) -> Info:
    found = ydl.extract_info(url, download=False, process=False, ie_key=ie_key)
    if not found:
        raise SluiceError(code="no_media")
    return dict(found)


def _collection(ydl: Downloader, found: Info, request: Info, emit: Emit) -> None:
    item = request.get("item")
    if item is not None or request.get("playlist") == "single":
        media, place = _nth(ydl, found, item or 1)
        emit(media_event(describe_media(ydl, media, item=place)))
        return
    entries = _entries(ydl, found)
    first_two = list(islice(entries, 2))
    if _is_single(first_two, request):
        emit(media_event(describe_media(ydl, first_two[0], item=1)))
        return
    page = found.get("webpage_url") or request["url"]
    title = plain_title(found.get("title"))
    emit({"event": "collection", "title": title, "url": page, "id": found.get("id")})
    _emit_entries(_again(first_two, entries), request, page, emit)


def _is_single(first_two: list[Info], request: Info) -> bool:
    """A page with one media comes as a list of one from some extractors."""
    asked_for_list = request.get("playlist", "auto") != "auto" or request.get("items")
    return (
        not asked_for_list and len(first_two) == 1 and first_two[0].get("_type", "video") == "video"
    )


def _again(first: list[Info], rest: Iterator[Info]) -> Iterator[Info]:
    yield from first
    yield from rest


def _emit_entries(entries: Iterable[Info], request: Info, page: str, emit: Emit) -> None:
    """One line per wanted entry, at once; `truncated` says that the cap came before the end."""
    items = Items.parse(request.get("items"))
    limit = request.get("max_entries") or MAX_ENTRIES
    count, truncated = 0, False
    for index, entry in enumerate(entries, start=1):
        if items.last is not None and index > items.last:
            break
        if index not in items:
            continue
        if count >= limit:
            truncated = True
            break
        emit(entry_event(entry, index, page))
        count += 1
    if count == 0:
        raise SluiceError(_nothing_of(request.get("items")), code="no_media")
    emit({"event": "end", "count": count, "truncated": truncated})


def _nothing_of(items: str | None) -> str:
    if items and items.strip():
        return f"the collection has no entry at {items}"
    return "the collection has no entries"


def _entries(ydl: Downloader, found: Info) -> Iterator[Info]:
    """The entries as the site gives them out, page by page; empty ones are left out.

    A list in the list, as the tabs of a channel are, is opened, and its entries stand in its place.
    """
    yield from _flat(ydl, found, set(), depth=0)


def _flat(ydl: Downloader, found: Info, single: set[str], *, depth: int) -> Iterator[Info]:
    """As `_entries`; `single` collects extractors of which an entry was no list after all."""
    for entry in found.get("entries") or ():
        if not entry:
            continue
        inner = _inner_list(ydl, entry, single) if depth < _MAX_DEPTH else None
        if inner is None:
            yield dict(entry)
        else:
            yield from _flat(ydl, inner, single, depth=depth + 1)


def _inner_list(ydl: Downloader, entry: Info, single: set[str]) -> Info | None:
    """The list that an entry is or leads to; None for a media, and for what can't be told.

    What can't be read is left to a job of its own, which says why.
    """
    if entry.get("_type") in _LIST_TYPES:
        return entry
    key = entry.get("ie_key")
    if entry.get("_type") != "url" or not key or key in single or not ydl.may_give_lists(key):
        return None
    try:
        found = _extract_once(ydl, entry["url"], key)
    except (SluiceError, YoutubeDLError):
        return None
    if found.get("_type") in _LIST_TYPES:
        return found
    single.add(key)
    return None


def _nth(ydl: Downloader, found: Info, place: int) -> tuple[Info, int]:
    """The media at a place of a list, from 1; an entry that leads to a list stands for its first.

    Returns:
        the media, and its place in the list that it was found in.

    Raises:
        SluiceError: `gone`, nothing is there; `unsupported_url`, lists lead to lists for ever.
    """
    for _ in range(_MAX_HOPS):
        entry = next(islice(_entries(ydl, found), place - 1, None), None)
        if entry is None:
            raise SluiceError("the page has no such entry any more", code="gone")
        for name in ("extractor", "extractor_key", "webpage_url"):
            entry.setdefault(name, found.get(name))
        if entry.get("_type", "video") == "video":
            return entry, place
        found = _resolve(ydl, entry["url"])
        if found.get("_type") not in _LIST_TYPES:
            return found, place
        place = 1
    raise SluiceError(_CIRCLE, code="unsupported_url")


def _refuse_live(info: Info) -> None:
    status = info.get("live_status")
    if status == "is_upcoming":
        starts = info.get("release_timestamp")
        wait = max(0.0, starts - time.time()) if starts else None
        raise SluiceError(code="live_not_started", retry_after=wait)
    if status == "is_live" or info.get("is_live"):
        raise SluiceError(
            "live streams are not recorded; submit the link again when it has ended",
            code="unsupported_url",
        )
