"""Addresses of Redis: one server, or a name whose server Sentinels know."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.connection import parse_url
from redis.sentinel import Sentinel, SentinelConnectionPool

from sluice_core.domain.errors import ConfigError

_SENTINEL_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_SENTINEL_PORT = 26379

#: Seconds for a question to one Sentinel: the next one is asked after it.
_SENTINEL_PATIENCE = 1.0

_WRONG = (
    "SLUICE_REDIS_URL must look like redis://host:6379/0, rediss://…, unix://… or"
    " redis+sentinel://host:26379,host:26379/name/0."
)


def make_pool(url: str, *, db_offset: int = 0, **options: Any) -> redis.ConnectionPool:
    """Connections to what the address leads to; none is opened yet.

    Args:
        url: `redis://`, `rediss://` (queries as in redis-py, e.g. `ssl_ca_certs`), `unix://`, or
            `redis+sentinel://[user:password@]host[:port],…/name[/db]` and `rediss+sentinel://`. The
            login is the server's; Sentinels get `?sentinel_password=…`, or with `sentinel_auth=on`
            the server's password.
        db_offset: added to the address' database number.
        options: of every connection, stronger than the address.

    Raises:
        ConfigError: the address can't be read.

    """
    try:
        scheme = urlsplit(url).scheme
        if scheme in _SENTINEL_SCHEMES:
            return _sentinel_pool(url, db_offset, options)
        found = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError as exc:
        raise ConfigError(_WRONG) from exc
    found["db"] = int(found.get("db", 0)) + db_offset
    return redis.ConnectionPool(**{**found, **options})


def _sentinel_pool(url: str, db_offset: int, options: dict[str, Any]) -> SentinelConnectionPool:
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    name, _, number = parts.path.strip("/").partition("/")
    sentinels = [_host_and_port(text) for text in hosts.split(",")]
    if not name:
        raise ValueError("the Sentinels are asked for a name")
    queries = dict(parse_qsl(parts.query))
    password, same = queries.pop("sentinel_password", None), queries.pop("sentinel_auth", "off")
    server = f"{_SENTINEL_SCHEMES[parts.scheme]}://{login}{at}any/{number or 0}"
    found = dict(parse_url(f"{server}?{urlencode(queries)}"))  # type: ignore[no-untyped-call]
    for key in ("host", "port", "connection_class"):
        found.pop(key, None)
    found["db"] = int(found["db"]) + db_offset
    found["ssl"] = parts.scheme.startswith("rediss")
    tls = {k: v for k, v in found.items() if k.startswith("ssl")}
    manager = Sentinel(  # type: ignore[no-untyped-call]
        sentinels,
        sentinel_kwargs={
            "socket_timeout": _SENTINEL_PATIENCE,
            "socket_connect_timeout": _SENTINEL_PATIENCE,
            "password": password or (found.get("password") if same == "on" else None),
            **tls,
        },
    )
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        unquote(name), manager, **{**found, **options}
    )


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"no host in {text!r}")
    return parts.hostname, parts.port or _SENTINEL_PORT
