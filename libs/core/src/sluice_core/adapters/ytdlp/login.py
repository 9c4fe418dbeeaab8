"""What a child shows to the site of its link: cookies by their domains, a password to its host.

Nothing of it is shown again: not with a description, not in an error, not on stderr. A link that is
needed and holds such a word is told once more, whole, for the worker to seal: see `hide_in_event`.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import Cookie, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TextIO, cast
from urllib.parse import urlsplit

import requests

from sluice_core.adapters.ytdlp.hiding import Hiding, spellings
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.masking import MASK
from sluice_core.domain.sites import sites_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from urllib.request import Request as PlainRequest

    from yt_dlp.networking import Request  # type: ignore[import-untyped]
    from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

#: Of a Netscape cookie line, the value's place.
_VALUE = 6
_LOGIN_REQUIRED = 401
#: What a redirect leaves as it is.
_HARMLESS = frozenset({"GET", "HEAD"})
_SECRET_HEADERS = frozenset({"cookie", "authorization"})


class SitePolicy(DefaultCookiePolicy):
    """Who gets a cookie, by RFC 6265: the library sends one of a host to all hosts below it.

    Nor does it send one to a host without a dot in its name, as clusters and homes have them.
    """

    def return_ok_domain(self, cookie: Cookie, request: PlainRequest) -> bool:
        host = urlsplit(request.get_full_url()).hostname or ""
        domain = cookie.domain.removeprefix(".").strip("[]")
        if domain == host:
            return True
        if "." not in host and domain == f"{host}.local":
            # As the library keeps what such a host sets itself.
            return True
        return cookie.domain_specified and domain in sites_above(host)


def keep_cookies_apart() -> None:
    """Give `SitePolicy` to the jars that the transport copies all cookies into for each request."""
    strict = partial(requests.cookies.RequestsCookieJar, policy=SitePolicy())
    setattr(requests.sessions, "RequestsCookieJar", strict)  # noqa: B010  # mypy forbids the plain form


@dataclass(frozen=True, slots=True)
class SiteLogin:
    """Of one request, see the package's docstring."""

    #: Text of a Netscape cookie file.
    cookies: str | None = field(repr=False)
    #: Host -> value of `Authorization`.
    basic: Mapping[str, str] = field(repr=False)
    #: All that must not be seen.
    hiding: Hiding = field(repr=False)

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> SiteLogin:
        given = request.get("login") or {}
        cookies = given.get("cookies")
        words = {line.split("\t")[_VALUE] for line in (cookies or "").splitlines() if "\t" in line}
        basic = {}
        for login in given.get("passwords") or ():
            pair = f"{login['username']}:{login['password']}".encode()
            basic[login["host"].strip("[]")] = f"Basic {b64encode(pair).decode()}"
            words |= {login["password"], b64encode(pair).decode()}
        return cls(cookies, basic, Hiding(_hidden_words(words, _shown_link(request))))

    def __bool__(self) -> bool:
        return bool(self.cookies or self.basic)

    def signed(self, request: Request) -> Request:
        """The request with the password when it goes to its host; a redirect elsewhere loses it."""
        basic = self.basic.get(urlsplit(request.url).hostname or "")
        if basic is None:
            return request
        # A copy: the library shares one set of headers between the requests of a manifest.
        own = request.copy()
        own.headers.setdefault("Authorization", basic)
        return own

    def signed_there(self, request: Request, refusal: HTTPError) -> Request | None:
        """The request at the address that refused it, with the password that no redirect brings.

        None where the request itself went there, or nothing is kept for that host.
        """
        there = refusal.response.url
        came_along = urlsplit(request.url).hostname == urlsplit(there).hostname
        if refusal.status != _LOGIN_REQUIRED or came_along or request.method not in _HARMLESS:
            return None
        own = request.copy()
        own.url = there
        signed = self.signed(own)
        if signed is own:
            return None
        refusal.close()
        return signed

    def hide_in_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event without any of its words, and without the cookies of a description.

        Where that takes something away from the link by which an entry or a page is found again,
        the link is in `sealable`, whole: for the worker, who keeps it sealed and shows it nobody.
        """
        hidden: dict[str, Any] = self._hidden(_without_cookies(event))
        link = event.get("info", event).get("webpage_url" if "info" in event else "url")
        if isinstance(link, str) and self.masked(link) != link:
            hidden["sealable"] = link
        return hidden

    def hide_in_stream(self, stream: TextIO) -> TextIO:
        """A stream that passes on what is written to it without any of its words."""
        return cast("TextIO", _Masked(stream, self))

    def hide_in(self, error: SluiceError) -> SluiceError:
        """The error without any of its words."""
        return SluiceError(
            self.masked(error.message),
            code=error.code,
            error_class=error.error_class,
            retry_after=error.retry_after,
        )

    def masked(self, text: str) -> str:
        return self.hiding.masked(text)

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, dict):
            return {name: self._hidden(of) for name, of in value.items()}
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in value]
        return value


def _hidden_words(values: Iterable[str], shown: str) -> set[str]:
    """The values in all their spellings, but for those that are part of what is shown anyway.

    Cookies hold names of users, of places and of the site itself too.
    """
    words = {word for value in values for word in spellings(value)}
    return {word for word in words if word not in shown}


def _shown_link(request: Mapping[str, Any]) -> str:
    """Host and path of the link as people see it, which need not be a good one.

    What else a link has may be secret.
    """
    info = request.get("info") or {}
    link = request.get("shown_url") or request.get("url") or info.get("webpage_url") or ""
    place = str(link).partition("?")[0].partition("#")[0].partition("://")[2]
    host, slash, path = place.partition("/")
    return f"{host.rpartition('@')[2]}{slash}{path}"


#: To show to nobody.
NOTHING = SiteLogin(None, {}, Hiding())


def _without_cookies(event: dict[str, Any]) -> dict[str, Any]:
    """A description without cookies and the like: ours, and what the site gave for them.

    Where the bytes are fetched ours are there again, and the page is asked again for the rest.
    """
    info = event.get("info")
    if info is None:
        return event
    subtitles = {name: _bare(fmt) for name, fmt in (info.get("subtitles") or {}).items()}
    kept = {"formats": [_bare(fmt) for fmt in info["formats"]], "subtitles": subtitles}
    return {**event, "info": {**_bare(info), **kept}}


def _bare(fmt: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in fmt.items() if name != "cookies"}
    if headers := kept.get("http_headers"):
        kept["http_headers"] = {
            name: value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS
        }
    return kept


def was_hidden(fmt: Mapping[str, Any]) -> bool:
    """Whether a stored format lacks what `SiteLogin` hid in it, so that its links lead nowhere."""
    return MASK in json.dumps({name: value for name, value in fmt.items() if name != "format_id"})


class _Masked(io.TextIOBase):
    """Has no `buffer`, by which the library would write past it."""

    def __init__(self, stream: TextIO, login: SiteLogin) -> None:
        self._stream = stream
        self._login = login

    def write(self, text: str) -> int:
        self._stream.write(self._login.masked(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
