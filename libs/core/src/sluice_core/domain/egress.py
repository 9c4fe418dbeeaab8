"""Which addresses untrusted input may lead to: the public internet, and what the operator adds."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_core.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

#: IANA's special-purpose registry, plus what clouds use for themselves. Written out, since
#: `is_global` differs between Python's releases and says yes to multicast.
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform services, in public space
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)

#: The only part of IPv6 that is given out for the public internet.
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")

#: Special ranges within it. Teredo, 6to4 and the like carry an IPv4 address that nobody has judged.
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)


#: A host name (RFC 1123) whose last label is no number, and a port.
_NAME = re.compile(
    r"(?P<host>(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
    r":(?P<port>[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])",
    re.IGNORECASE,
)


def parse_ip(text: str) -> IpAddress | None:
    """Read an address in its usual spelling, out of an IPv4 mapping; None when it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_loopback(name: str) -> bool:
    """Whether a host name or address leads to this machine alone, by its spelling (RFC 6761)."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = parse_ip(name)
    return address is not None and address.is_loopback


def is_public(address: IpAddress) -> bool:
    """Whether an address belongs to the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in special for special in _SPECIAL_V4)
    return address in _PUBLIC_V6 and not any(address in special for special in _SPECIAL_V6)


@dataclass(frozen=True, slots=True)
class AllowRule:
    """A network that an operator opens, on one port or on all."""

    network: IpNetwork
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> AllowRule:
        """Read `10.0.0.0/8`, `10.1.2.3:8080`, `10.0.0.0/8:8080`, `fd00::/8` or `[fd00::/8]:8080`.

        Raises:
            ConfigError: it is none of these.

        """
        try:
            return cls(ipaddress.ip_network(text.strip("[]"), strict=False))
        except ValueError:
            pass
        network, _, port = text.rpartition(":")
        try:
            rule = cls(ipaddress.ip_network(network.strip("[]"), strict=False), int(port))
        except ValueError as exc:
            raise ConfigError(
                f"{text!r} is neither a network nor an address or name with a port"
            ) from exc
        if not 0 < int(port) < 65536:  # noqa: PLR2004  # the range of ports
            raise ConfigError(f"the port of {text!r} is out of range")
        return rule

    def covers(self, address: IpAddress, port: int) -> bool:
        return address in self.network and self.port in {None, port}


@dataclass(frozen=True, slots=True)
class NameRule:
    """A host that an operator opens by name, on one port: its address may not be known before."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> NameRule | None:
        """Read `nas.lan:8080`; None when it is no name with a port."""
        found = _NAME.fullmatch(text)
        if found is None or parse_ip(found["host"]) is not None:
            return None
        return cls(found["host"].lower(), int(found["port"]))


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The one rule for links, redirects, manifests, DNS answers and callbacks."""

    allow: tuple[AllowRule, ...] = ()
    names: tuple[NameRule, ...] = ()

    @classmethod
    def parse(cls, allow: Iterable[str]) -> AddressPolicy:
        """Read the rules of `EGRESS_ALLOW`.

        Raises:
            ConfigError: one of them can't be read.

        """
        rules = [NameRule.parse(text) or AllowRule.parse(text) for text in allow]
        return cls(
            tuple(rule for rule in rules if isinstance(rule, AllowRule)),
            tuple(rule for rule in rules if isinstance(rule, NameRule)),
        )

    def hosts_on(self, port: int) -> tuple[str, ...]:
        """Names whose addresses, whatever they are now, may be reached on this port."""
        return tuple(rule.host for rule in self.names if rule.port == port)

    def is_open(self, host: str, port: int) -> bool:
        """Whether a link to this address or name may be taken; a name is judged once more later."""
        return host in self.hosts_on(port) or self.is_allowed(host, port)

    def is_allowed(self, ip: str, port: int) -> bool:
        """Whether a connection to this address (not name) is allowed; no for what is no address."""
        address = parse_ip(ip)
        if address is None:
            return False
        return is_public(address) or any(rule.covers(address, port) for rule in self.allow)
