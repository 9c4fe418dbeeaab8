"""`YoutubeDL` with our rules: http and https alone, and nothing that needs a helper program."""

from __future__ import annotations

import functools
import io
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yt_dlp  # type: ignore[import-untyped]
import yt_dlp.extractor  # type: ignore[import-untyped]
from yt_dlp.networking import common  # type: ignore[import-untyped]
from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.login import NOTHING, SiteLogin, SitePolicy
from sluice_core.adapters.ytdlp.options import NATIVE_PROTOCOLS
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from yt_dlp.networking import Request, Response

_SCHEMES = frozenset({"http", "https"})
#: The one transport, by its key there. The library has others, which it asks once more where this
#: one meets what it can't read: they show a password to whoever they are redirected to, or have
#: connections of their own that the egress guard does not see.
_TRANSPORT = "Requests"


def share_tls_context() -> None:
    """Read the certificates of all authorities once, in the parent of all children, not in each."""
    common.make_ssl_context = functools.cache(common.make_ssl_context)
    common.make_ssl_context(verify=True, legacy_support=False, use_certifi=True)


class StderrLogger:
    """Warnings go to stderr, whose end the runner keeps; all else is dropped."""

    def debug(self, message: str) -> None:
        """Progress and chatter."""

    def info(self, message: str) -> None:
        """Progress and chatter."""

    def warning(self, message: str) -> None:
        sys.stderr.write(f"{message}\n")

    def error(self, message: str) -> None:
        sys.stderr.write(f"{message}\n")


class Downloader(yt_dlp.YoutubeDL):  # type: ignore[misc]  # the package has no types
    """The library as a child uses it.

    Args:
        params: see `options`.
        login: what is shown to sites, each to its own.
        extractors: whether pages will be read; a transfer needs none.
    """

    def __init__(
        self, params: Mapping[str, Any], *, login: SiteLogin = NOTHING, extractors: bool = True
    ) -> None:
        jar = {"cookiefile": io.StringIO(login.cookies)} if login.cookies else {}
        super().__init__({**params, **jar, "logger": StderrLogger()}, auto_init=False)
        self._login = login
        if login:
            self.cookiejar.set_policy(SitePolicy())
        if extractors:
            # The library's own way compares each of the 1,800 names with all others.
            for extractor in yt_dlp.extractor.gen_extractor_classes():
                if extractor._ENABLED:  # noqa: SLF001  # how the library marks broken ones
                    self.add_info_extractor(extractor)
        #: Looks at every exchange of this run; may refuse, change or repeat it.
        self.exchange: Callable[[Request], Response] = super().urlopen

    def build_request_director(self, handlers: Iterable[Any], preferences: Any = None) -> Any:
        """As the library does, with one transport alone."""
        ours = [handler for handler in handlers if handler.RH_KEY == _TRANSPORT]
        return super().build_request_director(ours, preferences)

    def may_give_lists(self, ie_key: str) -> bool:
        """Whether an extractor's finds are lists, all or some, by the library's own examples."""
        # Of `Generic`, which tries what no other knows, nothing can be said.
        found = self._ies.get(ie_key) if ie_key != "Generic" else None
        return found is not None and found._RETURN_TYPE in {"playlist", "any"}  # noqa: SLF001  # nothing public tells

    def urlopen(self, req: Any) -> Any:
        """Open a link, a `Request` or a legacy request, http and https alone.

        Raises:
            SluiceError: `unsupported_url`, the link has another scheme.
        """
        if isinstance(req, str):
            req = yt_dlp.networking.Request(req)
        require_http(req.url)
        try:
            return self.exchange(self._login.signed(req))
        except HTTPError as exc:
            again = self._login.signed_there(req, exc)
            if again is None:
                raise
        return self.exchange(again)

    def process_video_result(self, info_dict: dict[str, Any], download: bool = True) -> Any:  # noqa: FBT001, FBT002  # the library's signature
        """Take away the formats that are not ours to fetch before one of them is chosen."""
        if info_dict.get("formats"):
            kept = [fmt for fmt in info_dict["formats"] if is_fetchable(fmt)]
            if not kept:
                raise SluiceError("the media is served in no supported way", code="unsupported_url")
            info_dict["formats"] = kept
        elif info_dict.get("url"):
            require_http(info_dict["url"])
        return super().process_video_result(info_dict, download=download)


def require_http(url: str) -> None:
    """Refuse schemes other than http and https.

    Raises:
        SluiceError: `unsupported_url`.
    """
    if urlsplit(url).scheme.lower() not in _SCHEMES:
        raise SluiceError(
            "it leads to a link that is neither http nor https", code="unsupported_url"
        )


def is_fetchable(fmt: Mapping[str, Any]) -> bool:
    """Whether yt-dlp's own downloaders fetch this format over http or https."""
    if urlsplit(fmt.get("url") or "").scheme.lower() not in _SCHEMES:
        return False
    protocol = fmt.get("protocol")
    return protocol is None or protocol in NATIVE_PROTOCOLS
