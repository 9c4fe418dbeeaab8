"""Redis: how to reach it, whether it is fit for us, and what its errors mean.

`SLUICE_REDIS_URL` names one logical database, N, for the `sluice:` keys; the broker's own keys live
in N + 1, so that neither side's scans and flushes touch the other.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluice_core.adapters.redis_address import make_pool
from sluice_core.domain.errors import BrokerAwayError, ConfigError, NotYetError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Added to the URL's database number to get the broker's.
BROKER_DB_OFFSET = 1

#: Seconds until a call to a silent server is given up.
SOCKET_TIMEOUT = 5.0

#: Seconds until a connection attempt is given up.
CONNECT_TIMEOUT = 3.0

#: Seconds of idleness after which a pooled connection is tried before it is used.
HEALTH_CHECK_INTERVAL = 30

#: Connections per process: its threads and a few of the broker's own.
MAX_CONNECTIONS = 256

#: The server is there, but can't do this now: as good as away, for whoever waits for it.
_AWAY = (
    exceptions.ConnectionError,  # with it: BusyLoading, refused password, pool exhausted
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)

#: First words of replies for which redis-py has no class of its own.
_AWAY_WORDS = ("MISCONF", "NOREPLICAS", "UNBLOCKED", "CLUSTERDOWN", "BUSY", "OOM", "READONLY")


def connect(
    url: str,
    *,
    db_offset: int = 0,
    decode: bool = True,
    socket_timeout: float = SOCKET_TIMEOUT,
) -> redis.Redis:
    """A client for `url`; opens no connection yet.

    Nothing is retried inside: a script that timed out may have run, and whoever called knows
    better than the client whether it may run again.

    Args:
        url: see `make_pool`.
        db_offset: added to the database number of the URL; `BROKER_DB_OFFSET` for the broker.
        decode: answer with `str` (UTF-8) instead of `bytes`.
        socket_timeout: seconds; must exceed the longest blocking command of this client.

    Raises:
        ConfigError: the URL can't be read.

    """
    return redis.Redis(
        connection_pool=make_pool(
            url,
            db_offset=db_offset,
            decode_responses=decode,
            # No byte that somebody put there may raise. A name goes back as it came.
            encoding_errors="replace" if decode else "surrogateescape",
            socket_timeout=socket_timeout,
            socket_connect_timeout=CONNECT_TIMEOUT,
            health_check_interval=HEALTH_CHECK_INTERVAL,
            max_connections=MAX_CONNECTIONS,
            retry=Retry(NoBackoff(), 0),
        )
    )


def connect_broker(url: str, *, socket_timeout: float = SOCKET_TIMEOUT) -> redis.Redis:
    """A client for the broker's own database; answers bytes, since any message may arrive."""
    return connect(url, db_offset=BROKER_DB_OFFSET, decode=False, socket_timeout=socket_timeout)


def connect_waker(url: str, *, longest_block: float = 5.0) -> redis.Redis:
    """A client of the broker's database for commands that block up to `longest_block` seconds."""
    return connect_broker(url, socket_timeout=longest_block + SOCKET_TIMEOUT)


def check(client: redis.Redis) -> None:
    """See that Redis answers, lets us in, and evicts nothing.

    Raises:
        NotYetError: it does not answer.
        ConfigError: one sentence for each other fault.

    """
    try:
        client.ping()
        memory = client.info("memory")
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as exc:
        raise ConfigError(
            f"Redis refuses the user or password of SLUICE_REDIS_URL ({exc})."
        ) from exc
    except (exceptions.ConnectionError, exceptions.TimeoutError) as exc:
        raise NotYetError(
            f"Redis does not answer at the address of SLUICE_REDIS_URL ({exc})."
        ) from exc
    except exceptions.ResponseError as exc:
        raise ConfigError(_words_for(exc)) from exc
    policy = _text(memory.get("maxmemory_policy", "unknown"))
    if policy != "noeviction":
        raise ConfigError(
            f"Redis has maxmemory-policy {policy}, which drops queued work: use noeviction."
        )


@contextmanager
def call() -> Iterator[None]:
    """Tell every way in which Redis can be away as one `BrokerAwayError`."""
    try:
        yield
    except _AWAY as exc:
        raise BrokerAwayError(f"Redis does not answer: {exc}") from exc
    except exceptions.ResponseError as exc:
        if not str(exc).startswith(_AWAY_WORDS):
            raise
        raise BrokerAwayError(f"Redis does not answer: {exc}") from exc


def _words_for(exc: exceptions.ResponseError) -> str:
    if "out of range" in str(exc):
        return (
            "Redis has too few databases: Sluice needs the one that SLUICE_REDIS_URL names"
            " and the next one."
        )
    if str(exc).startswith("NOAUTH"):
        return f"Redis wants a password, and SLUICE_REDIS_URL has none ({exc})."
    return f"Redis answers, but not as expected ({exc})."


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
