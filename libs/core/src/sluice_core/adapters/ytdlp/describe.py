"""What an extraction found, as events; pure, on yt-dlp's dictionaries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from sluice_core.domain.names import plain_title

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Kept of the media itself; what is needed to fetch is in the formats.
_MEDIA_FIELDS = (
    "id",
    "title",
    "webpage_url",
    "original_url",
    "extractor",
    "extractor_key",
    "duration",
    "thumbnail",
    "uploader",
    "upload_date",
    "language",
    "live_status",
    "is_live",
    "age_limit",
    "epoch",
)

#: Of no use to a downloader, and large.
_FORMAT_NOISE = frozenset({"format", "resolution", "aspect_ratio", "dynamic_range", "filename"})

_SMUGGLED = "__youtubedl_smuggle"

_LINK_TYPES = frozenset({"url", "url_transparent"})


def entry_event(entry: Mapping[str, Any], index: int, page: str) -> dict[str, Any]:
    """One entry of a collection, so that a job of its own can fetch it.

    A link of its own is preferred. An entry that stands on the page itself is named by the page's
    link and its place there (`item`), and `media_url` is its direct link when it has one.
    """
    link = _own_link(entry, page)
    return {
        "event": "entry",
        "index": index,
        "id": _text(entry.get("id")),
        "title": plain_title(entry.get("title")),
        "duration": entry.get("duration"),
        "thumbnail": entry.get("thumbnail"),
        "url": link or page,
        "item": None if link else index,
        "media_url": None if link else _direct_link(entry),
    }


def _own_link(entry: Mapping[str, Any], page: str) -> str | None:
    link = entry.get("url") if entry.get("_type") in _LINK_TYPES else entry.get("webpage_url")
    link, smuggled = unsmuggle(link or "")
    # What one extractor hands to another would be lost on the way through a job of its own; all but
    # an id, which only names the entry.
    if smuggled - {"force_videoid"}:
        return None
    return link if link != page and _is_http(link) else None


def unsmuggle(link: str) -> tuple[str, frozenset[str]]:
    """Part a link from what yt-dlp's extractors hide in it for each other: the names of that."""
    link, _, hidden = link.partition(f"#{_SMUGGLED}=")
    try:
        return link, frozenset(json.loads(unquote_plus(hidden)) if hidden else ())
    except (ValueError, TypeError):
        return link, frozenset({"unreadable"})


def _direct_link(entry: Mapping[str, Any]) -> str | None:
    formats = entry.get("formats") or [entry]
    link = formats[0].get("url") if len(formats) == 1 else None
    return link if link and _is_http(link) else None


def _is_http(link: str) -> bool:
    return urlsplit(link).scheme in {"http", "https"}


def slim(info: Mapping[str, Any], *, item: int | None) -> dict[str, Any]:
    """What must be kept to fetch the chosen formats later, or to extract them again.

    Args:
        info: sanitized, with the formats already chosen.
        item: the media's place on a page of several, None when the page has only one.
    """
    chosen = info.get("requested_formats") or [info]
    media = {name: info.get(name) for name in _MEDIA_FIELDS}
    return {
        **media,
        "title": plain_title(info.get("title")),
        "item": item,
        "formats": [_slim_format(fmt, info) for fmt in chosen],
        "subtitles": info.get("requested_subtitles") or {},
    }


def _slim_format(fmt: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    if fmt is info:
        # A single choice is spread over the media itself; find it in the list again.
        listed = info.get("formats") or ()
        fmt = next((f for f in listed if f.get("format_id") == info.get("format_id")), fmt)
    return {
        name: value
        for name, value in fmt.items()
        if value is not None and name not in _FORMAT_NOISE and name not in _NOT_OF_A_FORMAT
    }


#: Fields of the media that a format taken from it would drag along.
_NOT_OF_A_FORMAT = frozenset(
    {
        *_MEDIA_FIELDS,
        "formats",
        "requested_formats",
        "requested_subtitles",
        "requested_downloads",
        "subtitles",
        "automatic_captions",
        "thumbnails",
        "description",
        "tags",
        "categories",
        "chapters",
        "heatmap",
        "comments",
        "_type",
        "_version",
        "_filename",
        "playlist",
        "playlist_index",
        "display_id",
        "fulltitle",
    }
) - {"language"}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
