"""What the site is asked and what it answers, before any fault is laid over it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from . import pages
from .bodies import Body, BytesBody, FileBody, PaddedMp4, pattern_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .links import Signer
    from .media import MediaCache

HTML = "text/html; charset=utf-8"
HLS = "application/vnd.apple.mpegurl"
DASH = "application/dash+xml"
_TYPES = {
    ".mp4": "video/mp4",
    ".m4s": "video/iso.segment",
    ".webm": "video/webm",
    ".ts": "video/mp2t",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".m3u8": HLS,
    ".mpd": DASH,
    ".jpg": "image/jpeg",
}


class NoSuchPathError(LookupError):
    """The site has nothing there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the routes see it."""

    #: Unquoted, without the query.
    path: str
    #: The query on top of the control rules for the path.
    params: Mapping[str, str]
    #: Scheme and authority that the client used.
    base: str = "http://127.0.0.1"
    client: str = ""
    cookies: Mapping[str, str] = field(default_factory=dict)
    #: The header of this name.
    authorization: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A healthy answer."""

    body: Body
    content_type: str = HTML
    status: int = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()
    #: Whether ranges make sense: media files, not pages.
    ranges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the routes draw on.

    Args:
        media: where files come from.
        signer: for links with conditions.
        started: `time.time()` of the site's start, where live streams begin.
    """

    media: MediaCache
    signer: Signer
    started: float

    def file(self, path: str) -> FileBody:
        """A sample file.

        Raises:
            NoSuchPathError: no recipe makes it.
        """
        file = self.media.file(path)
        if file is None:
            raise NoSuchPathError(path)
        return FileBody(file)

    def padded(self, size: int, *, seed: int = 0) -> PaddedMp4:
        """A playable MP4 of exactly `size` bytes.

        Raises:
            ValueError: the size is too small for the sample inside.
        """
        pattern = self.media.blob("padding.bin", pattern_bytes)
        return PaddedMp4(self.file("/mp4/small.mp4").path, pattern, size, seed)


def text_reply(
    text: str,
    content_type: str = HTML,
    *,
    status: int = HTTPStatus.OK,
    headers: tuple[tuple[str, str], ...] = (),
) -> Reply:
    return Reply(
        body=BytesBody(text.encode()), content_type=content_type, status=status, headers=headers
    )


def status_reply(status: int, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """The small page that servers send with an error or a redirect."""
    text = pages.page(f"{status} {phrase(status)}", "<p>sample site</p>")
    return text_reply(text, status=status, headers=headers)


def media_reply(body: Body, path: str) -> Reply:
    """A file of the type that the path's ending tells; MP4 without one."""
    kind = _TYPES.get(posixpath.splitext(path)[1].lower(), "video/mp4")
    return Reply(body=body, content_type=kind, ranges=True)


def phrase(status: int) -> str:
    """The usual words for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
