"""Sends callbacks: one guarded POST, no redirects, a deadline over all of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from sluice_core.adapters.egress import BlockedAddressError, EgressGuard

#: Seconds to connect, between pieces of the answer, for everything.
TIMEOUTS = (5.0, 10.0, 20.0)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver said."""

    status: int
    #: Seconds that it asked to wait.
    retry_after: float | None


class CallbackFailedError(Exception):
    """Nothing was taken, or nobody knows; `blocked` when trying again is of no use."""

    def __init__(self, message: str, *, blocked: bool = False) -> None:
        super().__init__(message)
        self.blocked = blocked


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    guard: EgressGuard,
    proxy: str | None = None,
    timeouts: tuple[float, float, float] = TIMEOUTS,
) -> Answer:
    """POST a body; whatever status comes back is an answer, a redirect too.

    Args:
        url: http or https.
        body: as it is.
        headers: beside those of HTTP itself.
        guard: judges the address that is really connected to.
        proxy: link of an HTTP proxy that everything must go through; which addresses lie behind
            it is then the proxy's to judge.
        timeouts: seconds to connect, between pieces of the answer, for everything.

    Raises:
        CallbackFailedError: there is no answer.

    """
    parts = urlsplit(url)
    connect, read, total = timeouts
    connection: http.client.HTTPConnection | None = None
    timer: Timer | None = None
    try:
        connection = _connected(parts, guard, proxy, connect)
        assert connection.sock is not None  # noqa: S101  # it is connected
        # A receiver that sends a byte now and then would never run into the read's own timeout.
        timer = Timer(total, _cut, [connection])
        timer.daemon = True
        timer.start()
        connection.sock.settimeout(read)
        if parts.scheme == "https":
            _secure(connection, parts.hostname or "")
        target = url.partition("#")[0] if proxy and parts.scheme == "http" else _target(parts)
        connection.request("POST", target, body, {**headers, "Connection": "close"})
        with contextlib.closing(connection.getresponse()) as response:
            return Answer(response.status, _seconds(response.headers.get("Retry-After")))
    except BlockedAddressError as exc:
        raise CallbackFailedError("its address may not be connected to", blocked=True) from exc
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise CallbackFailedError(f"no answer: {str(exc) or type(exc).__name__}") from exc
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None:
            connection.close()


def _connected(
    parts: SplitResult, guard: EgressGuard, proxy: str | None, timeout: float
) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    if proxy is None:
        connection.sock = guard.create_connection(host, port, timeout=timeout)
        return connection
    way = urlsplit(proxy)
    connection = http.client.HTTPConnection(way.hostname or "", way.port or 80, timeout=timeout)
    if parts.scheme == "https":
        connection.set_tunnel(host, port)
    connection.connect()
    return connection


def _secure(connection: http.client.HTTPConnection, host: str) -> None:
    plain = connection.sock
    assert plain is not None  # noqa: S101  # it is connected
    secured = ssl.create_default_context().wrap_socket(
        plain, server_hostname=host, do_handshake_on_connect=False
    )
    # The old one is empty now; what cuts the connection must find the new one.
    connection.sock = secured
    secured.do_handshake()


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _cut(connection: http.client.HTTPConnection) -> None:
    """Let whoever waits on the connection meet its end."""
    if (sock := connection.sock) is not None:
        with contextlib.suppress(OSError):
            # The plain socket's own: TLS would first want to say goodbye.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _seconds(text: str | None) -> float | None:
    """Seconds of a `Retry-After`; its other form, a date, is not worth trusting a clock for."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
