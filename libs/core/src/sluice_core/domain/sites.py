"""What a site asks of whoever comes: cookies, and a name with a password; and whose they are.

Pure; nothing here quotes what it was given, since errors end up in logs and answers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from sluice_core.domain.egress import parse_ip
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.urls import normal_host

#: Characters of a cookie file as handed in: that of a browser in use for years.
MAX_FILE = 2_000_000
#: Characters that are kept of it. No server takes more than a small part of that in one request.
MAX_KEPT = 65_536
#: Characters of a user name, and of a password.
MAX_USER, MAX_PASSWORD = 256, 1_024

#: First line of a cookie file.
_HEAD = "# Netscape HTTP Cookie File"
_HTTP_ONLY = "#HttpOnly_"
_FIELDS = 7
_EXPIRES = re.compile(r"(-?[0-9]{1,15}(\.[0-9]{1,9})?)?")
#: The last second of the year 9999, beyond which no calendar here goes.
_FOR_EVER = 253_402_300_799
#: What a header takes, and no separator of cookies.
_NAME = re.compile(r"[!-:<>-~]+")
_VALUE = re.compile(r"[ -:<-~]*")
_PATH = re.compile(r"/[!-:<-~]*")


class BadLoginError(ValueError):
    """What was handed in can't be used, told in one sentence that quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """One line of a Netscape cookie file, as it is kept."""

    #: Without a leading dot.
    domain: str
    #: Whether hosts below the domain get it too.
    below: bool
    path: str
    secure: bool
    #: Unix seconds; None ends with the session.
    expires: int | None
    name: str
    value: str = field(repr=False)

    def line(self) -> str:
        """As a Netscape cookie file has it; the dot and the second field must agree."""
        flags = {True: "TRUE", False: "FALSE"}
        return "\t".join(
            (
                f".{self.domain}" if self.below else self.domain,
                flags[self.below],
                self.path,
                flags[self.secure],
                str(self.expires or 0),
                self.name,
                self.value,
            )
        )


@dataclass(frozen=True, slots=True)
class CookieFile:
    """What is kept of a file that was handed in for a host."""

    cookies: tuple[Cookie, ...]
    #: Lines that were left out: cookies of other domains, and those whose time is over.
    foreign: int = 0
    expired: int = 0

    @property
    def text(self) -> str:
        """A Netscape cookie file."""
        return "\n".join((_HEAD, *(cookie.line() for cookie in self.cookies), ""))

    @property
    def expires_at(self) -> float | None:
        """When the first of them ends; None when all end with their session."""
        return min((float(c.expires) for c in self.cookies if c.expires is not None), default=None)


@dataclass(frozen=True, slots=True)
class Login:
    """What one site is shown. Never printed, never logged."""

    host: str
    #: Text of a Netscape cookie file.
    cookies: str | None = field(default=None, repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def dumps(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def loads(cls, data: bytes) -> Login:
        return cls(**json.loads(data))


def site_host(text: str) -> str:
    """The host that people mean, in the spelling that links have here.

    Raises:
        BadLoginError: it is no host name and no address.

    """
    text = text.strip()
    if "://" in text or "/" in text or "@" in text:
        raise BadLoginError("name the host alone, as in example.com")
    if text.count(":") == 1 or (text.startswith("[") and not text.endswith("]")):
        raise BadLoginError("name the host without a port: what it is shown holds on all of them")
    try:
        return normal_host(text.strip("[]").removeprefix("."))
    except SluiceError as exc:
        raise BadLoginError("this is neither a host name nor an address") from exc


def host_of(link: str) -> str:
    """The host of a link that was checked, as `site_host` spells it."""
    host = urlsplit(link).hostname or ""
    return f"[{host}]" if ":" in host else host


def sites_above(host: str) -> list[str]:
    """The host itself and each domain that it lies in, the nearest first."""
    if _is_address(host):
        return [host]
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]


def merged_cookies(logins: Iterable[Login]) -> str | None:
    """One cookie file with the cookies of all; None when there are none."""
    files = [login.cookies for login in logins if login.cookies]
    lines = [line for text in files for line in text.splitlines() if line != _HEAD]
    return "\n".join((_HEAD, *lines, "")) if lines else None


def check_password(username: str | None, password: str | None) -> None:
    """Refuse what HTTP Basic can't carry.

    Raises:
        BadLoginError: one of both is missing, too long, or has characters that no header takes.

    """
    if username is None and password is None:
        return
    if not username or password is None:
        raise BadLoginError("a user name and a password belong together")
    if len(username) > MAX_USER or len(password) > MAX_PASSWORD:
        raise BadLoginError(
            f"a user name has at most {MAX_USER} characters, a password {MAX_PASSWORD}"
        )
    if ":" in username or not (username + password).isprintable():
        raise BadLoginError("a user name has no colon, and neither has control characters")


def read_cookies(
    text: str, host: str, *, now: float, between: Callable[[], None] = lambda: None
) -> CookieFile:
    """Keep what a Netscape cookie file has for a host and the hosts below it.

    Browsers write all their cookies into one file: those of other domains are left out and counted.

    Args:
        text: the file.
        host: as `site_host` spells it.
        now: Unix seconds.
        between: called between two lines; a long file takes more than a second.

    Raises:
        BadLoginError: the file is too long, a line can't be read, or nothing of it is left.

    """
    if len(text) > MAX_FILE:
        raise BadLoginError(f"a cookie file has at most {MAX_FILE} characters")
    kept, foreign, expired = [], 0, 0
    for number, fields in _lines(text, between):
        cookie = _cookie(number, fields, host)
        if cookie is None:
            foreign += 1
        elif cookie.expires is not None and cookie.expires <= now:
            expired += 1
        else:
            kept.append(cookie)
    found = CookieFile(tuple(kept), foreign, expired)
    _check_rest(found, host)
    return found


def _check_rest(found: CookieFile, host: str) -> None:
    if len(found.text) > MAX_KEPT:
        raise BadLoginError(f"the cookies of {host} have more than {MAX_KEPT} characters together")
    if found.cookies:
        return
    if found.expired:
        raise BadLoginError(f"all cookies of {host} in the file have expired")
    if found.foreign:
        raise BadLoginError(
            f"none of the {found.foreign} cookies in the file belongs to {host} or a host below it;"
            " name the site as its cookies do, e.g. example.com for those of .example.com"
        )
    raise BadLoginError("there is no cookie in the file")


def _lines(text: str, between: Callable[[], None]) -> Iterator[tuple[int, list[str]]]:
    for number, ended in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        between()
        line = ended.removesuffix("\r")
        rest = line.removeprefix(_HTTP_ONLY)
        if not rest.strip() or (rest is line and line.startswith("#")):
            continue
        fields = rest.split("\t")
        if len(fields) != _FIELDS:
            _refuse(number, "has not the 7 fields of a Netscape cookie file, with tabs between")
        yield number, fields


def _cookie(number: int, fields: list[str], host: str) -> Cookie | None:
    """The cookie of a line; None when it is of another domain.

    The standard library reads these files too, and quotes a line that it can't read.
    """
    domain, below, path, secure, expires, name, value = fields
    if below not in _FLAGS or secure not in _FLAGS:
        _refuse(number, "has something else than TRUE and FALSE in its second or fourth field")
    if not _EXPIRES.fullmatch(expires):
        _refuse(number, "has a time in its fifth field that is no number")
    try:
        domain = site_host(domain)
    except BadLoginError:
        return None
    if host not in sites_above(domain):
        return None
    if not _PATH.fullmatch(path):
        _refuse(number, "has a path in its third field that does not begin with /")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        _refuse(number, "has a name or a value that no Cookie header can carry")
    ends = min(math.floor(float(expires or 0)), _FOR_EVER)
    return Cookie(
        domain=domain,
        # An address has nothing below it.
        below=_FLAGS[below] and not _is_address(domain),
        path=path,
        secure=_FLAGS[secure],
        # Browsers write 0, extensions of theirs -1 or nothing, for one that ends with its session.
        expires=ends if ends > 0 else None,
        name=name,
        value=value,
    )


def _is_address(host: str) -> bool:
    return parse_ip(host.strip("[]")) is not None


_FLAGS = {"TRUE": True, "FALSE": False}


def _refuse(number: int, what: str) -> NoReturn:
    raise BadLoginError(f"line {number} {what}")
