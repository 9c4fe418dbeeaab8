"""Every request of a transfer passes here: bytes of two versions are never put together."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

from sluice_core.adapters.egress import blocked_in
from sluice_core.adapters.ytdlp.errors import map_error
from sluice_core.adapters.ytdlp.resume import Version
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.told import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice_core.adapters.ytdlp.resume import PartialFile

#: Answers of a site whose link was bound to an address, a cookie or a time.
_STALE = frozenset({401, 403, 410})

_TOO_MANY = 429
_NOT_SATISFIABLE = 416
_PARTIAL = 206

_RANGE = re.compile(r"bytes=(?P<first>\d+)-(?P<last>\d*)")
_DIGITS = re.compile(r"[0-9]+")
_MAX_DIGITS = len(str(MAX_BYTES))
_PART = re.compile(r"\s*bytes\s+(?P<first>\d+)-", re.IGNORECASE)


class StaleLinkError(SluiceError):
    """The link is refused; a fresh one from the page may not be."""


class Exchange:
    """Sends the requests of one transfer.

    Args:
        send: the library's own way.
        file: what is on disk.
        whole: whether one link gives the whole file; else a manifest names its fragments.
    """

    def __init__(self, send: Callable[[Any], Any], file: PartialFile, *, whole: bool) -> None:
        self._send = send
        self._file = file
        self._whole = whole

    def __call__(self, request: Any) -> Any:
        wanted = _RANGE.fullmatch(request.headers.get("Range") or "")
        if self._whole:
            return self._ask_whole(request, wanted)
        if wanted and not wanted["last"]:
            # The library goes on with half a fragment; ask for all of it.
            request = _without_range(request)
        return self._ask(request)

    def _ask_whole(self, request: Any, wanted: re.Match[str] | None) -> Any:
        if wanted is None or int(wanted["first"]) == 0:
            return self._note(self._ask(request))
        version = self._file.load().version
        if not version.is_known:
            return self._start_again(request)
        if version.if_range:
            request.headers["If-Range"] = version.if_range
        try:
            response = self._ask(request)
        except HTTPError as exc:
            if exc.status != _NOT_SATISFIABLE:
                raise
            exc.close()
            return self._start_again(request)
        fits = version.matches(Version.of(response.headers)) and _begins_at(
            response, int(wanted["first"])
        )
        if response.status == _PARTIAL and not fits:
            response.close()
            return self._start_again(request)
        return response if response.status == _PARTIAL else self._note(response)

    def _start_again(self, request: Any) -> Any:
        """Ask for the whole; the library then empties the file, as after a refused range."""
        return self._note(self._ask(_without_range(request)))

    def _note(self, response: Any) -> Any:
        if response.status == _PARTIAL and not _begins_at(response, 0):
            response.close()
            raise SluiceError("the site sent another part than was asked for", code="incomplete")
        self._file.begin_again(version=Version.of(response.headers))
        return response

    def _ask(self, request: Any) -> Any:
        try:
            return _believed(self._send(request))
        except HTTPError as exc:
            if exc.status in _STALE:
                error = map_error(exc, now=time.time())
                raise StaleLinkError(error.message, code=error.code) from exc
            if exc.status == _TOO_MANY:
                # Asking again at once is what the site has just forbidden.
                raise map_error(exc, now=time.time()) from exc
            raise
        except Exception as exc:
            if blocked_in(exc):
                raise SluiceError(code="blocked_address") from exc
            raise


def _believed(response: Any) -> Any:
    """The answer, unless it promises more than there is: the library counts on that figure."""
    length = response.headers.get("Content-Length") or ""
    # Beyond some thousand digits it is not even read.
    if _DIGITS.fullmatch(length) and (len(length) > _MAX_DIGITS or int(length) > MAX_BYTES):
        response.close()
        raise SluiceError("the site names a size that no media has", code="server_error")
    return response


def _begins_at(response: Any, first: int) -> bool:
    """Whether a part begins there, as far as the site says."""
    said = _PART.match(response.headers.get("Content-Range") or "")
    return said is None or int(said["first"]) == first


def _without_range(request: Any) -> Any:
    whole = request.copy()
    for name in ("Range", "If-Range"):
        whole.headers.pop(name, None)
    return whole
