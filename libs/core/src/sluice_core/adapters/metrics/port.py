"""A port with `/metrics`, `/livez` and `/readyz`, for processes that serve nothing else."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any

import structlog

from sluice_core.adapters.metrics.instruments import Registry, render
from sluice_core.domain.errors import ConfigError

log = structlog.get_logger(__name__)

#: Seconds that a client may take for its request and for the answer.
PATIENCE = 5.0
#: Requests at once; more are turned away, so that nobody can fill a process with threads.
MAX_REQUESTS = 8

_TEXT = "text/plain; charset=utf-8"


class MetricsPort:
    """Listens from the start; answers once `start` was called, until `close`.

    Args:
        registries: whose metrics to show.
        host: to bind to.
        port: 0 takes any free one.
        live: why this process can't do its work any more; empty while it can.
        ready: why it does not do its work yet; empty once it does.

    Raises:
        ConfigError: the address can't be had.

    """

    def __init__(
        self,
        registries: Sequence[Registry],
        *,
        host: str,
        port: int,
        live: Callable[[], str] = str,
        ready: Callable[[], str] = str,
    ) -> None:
        self._pages: dict[str, Callable[[str], tuple[int, str, bytes]]] = {
            "/metrics": lambda accept: _metrics(registries, accept),
            "/livez": lambda _accept: _verdict(live()),
            "/readyz": lambda _accept: _verdict(ready()),
        }
        try:
            self._server = _Server((host, port), self._pages)
        except (OSError, OverflowError) as exc:
            reason = getattr(exc, "strerror", None) or exc
            raise ConfigError(
                f"Port {port} of {host} can't be had for metrics: {reason}. "
                "Set SLUICE_METRICS_PORT to a free one."
            ) from exc
        self._thread = Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, daemon=True
        )
        self._thread.name = "metrics-port"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread and free the port."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(PATIENCE)
        self._server.server_close()


def _metrics(registries: Sequence[Registry], accept: str) -> tuple[int, str, bytes]:
    body, content_type = render(registries, accept)
    return 200, content_type, body


def _verdict(reason: str) -> tuple[int, str, bytes]:
    return (503, _TEXT, f"{reason}\n".encode()) if reason else (200, _TEXT, b"ok\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    #: Connections that wait to be taken: a burst must not cost a probe the second of a lost SYN.
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], pages: Any) -> None:
        self.pages = pages
        self._free = BoundedSemaphore(MAX_REQUESTS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        log.info("metrics_request_failed", client=client_address[0], error=str(sys.exc_info()[1]))


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server
    server_version = "sluice"
    sys_version = ""

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            status, content_type, body = 404, _TEXT, b"not here\n"
        else:
            status, content_type, body = page(self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  # the base class looks for this name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name
        """Probes come every few seconds: nothing worth a line."""
