"""What a submitted link must look like before anything is done with it."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import SplitResult, quote, urlsplit

from sluice_core.domain.egress import AddressPolicy, parse_ip
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Longest link in characters; the longest that sites hand out are signed ones of some 2,000.
MAX_LENGTH = 4096

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_MAX_HOST = 253

#: yt-dlp's own way to hand data from one extractor to another within a link; not for outsiders.
_SMUGGLED = "__youtubedl_smuggle"

#: Categories of characters that no link has: controls, surrogates, all kinds of blanks.
_UNFIT = frozenset({"Cc", "Cs", "Zs", "Zl", "Zp"})

#: What may stand in a path, query or fragment as it is; "%" too, so nothing is encoded twice.
_SAFE = "!$%&'()*+,-./:;=?@_~[]"


_PUBLIC_ONLY = AddressPolicy()


def check_url(text: str, *, allowed: Callable[[str, int], bool] = _PUBLIC_ONLY.is_allowed) -> str:
    """Return the link in one normal spelling, ASCII alone.

    Addresses written as numbers are judged here; a name is judged when it is connected to.

    Args:
        text: as submitted.
        allowed: whether an address or name may be reached on a port, see `AddressPolicy.is_open`.

    Raises:
        SluiceError: `unsupported_url` with what is wrong, or `blocked_address`.

    """
    text = text.strip()
    _check_text(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        _refuse("this is not a link")
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        _refuse("only links that start with http:// or https:// are supported")
    _check_authority(parts)
    host = normal_host(parts.hostname or "")
    if port == 0:
        _refuse("the link's port is 0")
    _check_address(host, port or _DEFAULT_PORTS[scheme], allowed)
    netloc = host if port in {None, _DEFAULT_PORTS[scheme]} else f"{host}:{port}"
    return _join(scheme, netloc, parts)


def _check_text(text: str) -> None:
    if not text:
        _refuse("the link is empty")
    if len(text) > MAX_LENGTH:
        _refuse(f"the link is longer than {MAX_LENGTH} characters")
    if any(unicodedata.category(char) in _UNFIT for char in text):
        _refuse("the link has blanks or control characters in it")
    if _SMUGGLED in text:
        _refuse("this is not a link")


def _check_authority(parts: SplitResult) -> None:
    if "@" in parts.netloc:
        _refuse("links with a user name or password are not supported; store credentials instead")
    if "\\" in parts.netloc or not parts.hostname:
        _refuse("the link has no host name")


def normal_host(host: str) -> str:
    """A host as links have it: lower case, ASCII, no dot at its end, IPv6 in brackets.

    Raises:
        SluiceError: `unsupported_url`, it can't be read.

    """
    if ":" in host:
        address = parse_ip(host)
        if address is None or "%" in host:
            _refuse("the link's address can't be read")
        return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004  # IPv6
    if len(host) > _MAX_HOST + 1:
        # Spelling out a long one takes long, and makes none shorter that could be reached.
        _refuse("the link's host name can't be read")
    host = _to_ascii(host).rstrip(".")
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host) or ".." in host:
        _refuse("the link's host name can't be read")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return str(_loose_ipv4(host))
    return host


def _to_ascii(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        _refuse("the link's host name can't be read")


def _loose_ipv4(host: str) -> ipaddress.IPv4Address:
    """Read an IPv4 address as C libraries do: 127.1, 0x7f.0.0.1, 0177.0.0.1, 2130706433."""
    texts = host.split(".")
    try:
        *first, last = [_number(text) for text in texts]
    except ValueError:
        _refuse("the link's address can't be read")
    rest = 4 - len(first)
    if rest < 1 or any(part > 255 for part in first) or last >= 256**rest:  # noqa: PLR2004  # bytes
        _refuse("the link's address can't be read")
    return ipaddress.IPv4Address(last + sum(part << 8 * (3 - at) for at, part in enumerate(first)))


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def _check_address(host: str, port: int, allowed: Callable[[str, int], bool]) -> None:
    is_local = host == "localhost" or host.endswith(".localhost")
    address = parse_ip("127.0.0.1" if is_local else host.strip("[]"))
    if address is not None and not (allowed(str(address), port) or allowed(host, port)):
        raise SluiceError(code="blocked_address")


def _join(scheme: str, netloc: str, parts: SplitResult) -> str:
    try:
        path = quote(parts.path or "/", safe=_SAFE)
        query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
        fragment = f"#{quote(parts.fragment, safe=_SAFE)}" if parts.fragment else ""
    except UnicodeEncodeError:
        _refuse("the link is not valid text")
    return f"{scheme}://{netloc}{path}{query}{fragment}"


def _refuse(message: str) -> NoReturn:
    raise SluiceError(message, code="unsupported_url")
