"""Where a link leads at once: to a site that something is kept for, and that was not shown it.

Short links and those that count clicks are of another host than the page that is meant. Only the
first exchange of a run tells: it goes to the link itself, or where the link's own extractor knows
that it leads. What a page says later leads nobody to a site with what is kept for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

from sluice_core.domain.errors import SluiceError
from sluice_core.domain.sites import host_of, sites_above

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice_core.adapters.ytdlp.ydl import Downloader


class ElsewhereError(SluiceError):
    """The link leads to sites that the run has nothing for, and somebody has."""


class Landing:
    """Takes the place of a downloader's `exchange`.

    Args:
        ydl: of a run that begins.
        sites: hosts that something is kept for, but for those that the run was given.

    """

    def __init__(self, ydl: Downloader, sites: Sequence[str]) -> None:
        self._send = ydl.exchange
        self._places = {host: place for place, host in enumerate(sites)}
        self._first = True
        #: Where the sites that the link led to stand among `sites`.
        self.found: list[int] = []
        ydl.exchange = self

    def __call__(self, request: Any) -> Any:
        if not self._first:
            return self._send(request)
        self._first = False
        self._look([request.url])
        try:
            response = self._send(request)
        except HTTPError as exc:
            self._look(_hops(exc.response))
            raise
        self._look(_hops(response))
        return response

    def _look(self, links: Sequence[str]) -> None:
        hosts = [host for link in links for host in sites_above(host_of(link))]
        self.found = sorted({self._places[host] for host in hosts if host in self._places})
        if self.found:
            raise ElsewhereError("the link leads to a site that something is kept for")


def _hops(response: Any) -> list[str]:
    """The links of all answers, redirects included."""
    # The library tells the last one only.
    kept = response._requests_response  # noqa: SLF001
    return [*(hop.url for hop in kept.history), response.url]
