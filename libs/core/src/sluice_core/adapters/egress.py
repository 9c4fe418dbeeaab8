"""The egress guard: sockets of a child process that refuse special addresses at connect time.

It sees what is really connected to, so a redirect, a manifest, a DNS answer that changes between
two look-ups or an odd spelling of an address make no difference.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sluice_core.domain.egress import AddressPolicy, IpAddress, parse_ip
from sluice_core.domain.errors import ConfigError, SluiceError

if TYPE_CHECKING:
    from collections.abc import Iterable

_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6})


class BlockedAddressError(OSError):
    """A connection that the guard refused; libraries pass it on as they do any network failure."""

    code = "blocked_address"


class EgressGuard:
    """Decides on connections, and can bind the whole process to its decisions.

    Args:
        allow: rules of `EGRESS_ALLOW`, see `AllowRule.parse` and `NameRule.parse`; names are
            looked up whenever an address is not allowed without them.
        proxy: link of an HTTP proxy. With it nothing but the proxy may be connected to, and which
            addresses are reached behind it is the proxy's to decide.

    Raises:
        ConfigError: a rule or the proxy can't be read.

    """

    def __init__(self, *, allow: Iterable[str] = (), proxy: str | None = None) -> None:
        self._policy = AddressPolicy.parse(allow)
        self._proxy = _host_and_port(proxy) if proxy else None
        self._proxy_addresses: frozenset[tuple[IpAddress | None, int]] = frozenset()

    def is_allowed(self, ip: str, port: int) -> bool:
        """Whether this address may be connected to; names are refused, they are not addresses."""
        if self._proxy is not None:
            return (parse_ip(ip), port) in self._proxy_addresses
        return self._policy.is_allowed(ip, port) or self._is_named(ip, port)

    def _is_named(self, ip: str, port: int) -> bool:
        address = parse_ip(ip)
        if address is None:
            return False
        for host in self._policy.hosts_on(port):
            with suppress(OSError):
                if (address, port) in _addresses(host, port):
                    return True
        return False

    def install(self) -> None:
        """Bind this process, for good.

        An audit hook is called by the interpreter itself, in front of every connect and datagram
        of every library written on Python's sockets, and can't be taken away again.

        Raises:
            SluiceError: `network`, the proxy's name does not resolve.

        """
        if self._proxy is not None:
            self._proxy_addresses = _resolve(*self._proxy)
        sys.addaudithook(self._audit)

    def check(self, family: int, address: object) -> None:
        """Judge a socket address as `socket.connect` takes it.

        Raises:
            BlockedAddressError: it is refused.

        """
        if family not in _FAMILIES or not isinstance(address, tuple):
            raise BlockedAddressError("only internet addresses may be connected to")
        host, port = address[:2]
        if not isinstance(host, str) or not self.is_allowed(host, port):
            raise BlockedAddressError(f"{host} port {port} may not be connected to")

    def create_connection(self, host: str, port: int, *, timeout: float) -> socket.socket:
        """Connect to the first address of a name that is allowed and answers, without `install`.

        Args:
            host: name or address.
            port: its port.
            timeout: seconds for all of its addresses, of which each gets a fair share: a name may
                have any number of them.

        Raises:
            BlockedAddressError: no address of the name is allowed.
            OSError: none of the allowed ones answers.

        """
        failure: OSError | None = None
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        deadline = time.monotonic() + timeout
        for number, (family, kind, proto, _, address) in enumerate(found):
            left = (deadline - time.monotonic()) / (len(found) - number)
            candidate = socket.socket(family, kind, proto)
            try:
                self.check(family, address)
                # Never 0, which would mean not to wait at all.
                candidate.settimeout(max(0.001, left))
                candidate.connect(address)
            except OSError as exc:
                candidate.close()
                # A failure to connect says more than a refusal of ours.
                if failure is None or not isinstance(exc, BlockedAddressError):
                    failure = exc
            else:
                return candidate
        raise failure or OSError(f"{host} has no address")

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        sock, address = args
        # Without an address a datagram goes where the socket was connected to.
        if address is not None:
            self.check(sock.family, address)


def _host_and_port(proxy: str) -> tuple[str, int]:
    parts = urlsplit(proxy)
    port = None
    with suppress(ValueError):
        port = parts.port
    if parts.scheme not in {"http", "https"} or not parts.hostname or port is None:
        raise ConfigError("EGRESS_PROXY must look like http://proxy:3128")
    return parts.hostname, port


def _resolve(host: str, port: int) -> frozenset[tuple[IpAddress | None, int]]:
    try:
        return _addresses(host, port)
    except OSError as exc:
        raise SluiceError("the egress proxy's name does not resolve", code="network") from exc


def _addresses(host: str, port: int) -> frozenset[tuple[IpAddress | None, int]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return frozenset((parse_ip(str(address[0])), port) for *_, address in found)


def blocked_in(error: BaseException) -> BlockedAddressError | None:
    """The guard's refusal behind an error of some library, however deep that has wrapped it."""
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        at = todo.pop()
        if not isinstance(at, BaseException) or id(at) in seen:
            continue
        if isinstance(at, BlockedAddressError):
            return at
        seen.add(id(at))
        todo += [at.__cause__, at.__context__, *at.args]
        todo += [getattr(at, name, None) for name in ("cause", "reason", "orig_msg")]
        exc_info = getattr(at, "exc_info", None)
        todo += exc_info if isinstance(exc_info, tuple) else ()
    return None
