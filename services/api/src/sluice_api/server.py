"""gunicorn, told what to do by code instead of files and flags."""

from __future__ import annotations

import socket
from typing import Any

import gevent
import structlog
from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.workers.ggevent import GeventWorker

# Loaded before the fork, opened after it.
from sluice_api.app import EXTENSION, create_app
from sluice_api.deps import Deps
from sluice_api.events.stream import HandedOverError
from sluice_api.turns import Turns
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import StoreAwayError

log = structlog.get_logger(__name__)

#: Seconds that running requests get after SIGTERM; streams end at once.
GRACE = 2
#: Seconds, and bytes, that a client may still send while it reads why its body was refused.
LINGER = 2.0
LINGER_BYTES = 16 * 1024 * 1024
_PIECE = 64 * 1024
#: Seconds that the first look at the database may keep a process from its requests.
START_PATIENCE = 2.0
#: Connections of one process.
MAX_CONNECTIONS = 8_000


class Logger(glogging.Logger):
    """Leaves handlers and form to our own logging."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log.propagate = True
        self.access_log.propagate = True


class Worker(GeventWorker):
    """Lets go of streams once they have begun, and ends them when it is told to stop."""

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        if not isinstance(req.unreader.sock, _Shared):
            req.unreader.sock = _Shared(sock)
        try:
            kept = super().handle_request(listener_name, req, sock, addr)
        except HandedOverError:
            # Ends the loop over this connection's requests; closing a detached socket does nothing.
            raise StopIteration from None
        except StopIteration:
            if self.alive and _has_body(req):
                _linger(sock)
            raise
        if req.body.failed:
            # Nobody knows where the next request would begin.
            _linger(sock)
            raise StopIteration
        return kept

    def handle_exit(self, sig: int, frame: Any) -> None:
        _deps_of(self).hub.stop()
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        _deps_of(self).hub.stop()
        super().handle_quit(sig, frame)


class _Shared:
    """A connection that is read from, fairly.

    What has arrived is read without a wait: a client that sends a body in chunks of a byte, faster
    than they are taken apart, would have the loop for a minute.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._turns = Turns()

    def recv(self, size: int) -> bytes:
        self._turns.give()
        return self._sock.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def _has_body(req: Any) -> bool:
    return any(name in ("CONTENT-LENGTH", "TRANSFER-ENCODING") for name, _ in req.headers)


def _linger(sock: socket.socket) -> None:
    """Let a client that still sends its body read the answer to it.

    What arrives at a closed socket is answered with a reset, which takes the answer along.
    """
    left = LINGER_BYTES
    try:
        sock.shutdown(socket.SHUT_WR)
        # Quietly: the stubs know of no such form.
        with gevent.Timeout(LINGER, exception=False):  # type: ignore[arg-type]
            while left > 0 and (data := sock.recv(_PIECE)):
                left -= len(data)
    except OSError:
        # The client is gone: nobody is left to be told.
        return


class Server(BaseApplication):
    """One parent, which restarts its worker when it dies, and one worker.

    Args:
        settings: of this process.
        listener: already bound, so that a port in use is told at once.
        metrics: as well, where `/metrics` has a port of its own.

    """

    def __init__(
        self, settings: Settings, listener: socket.socket, metrics: socket.socket | None = None
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._listeners = [listener, *([metrics] if metrics else [])]
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": [f"fd://{one.fileno()}" for one in self._listeners],
            "worker_class": "sluice_api.server.Worker",
            "workers": 1,
            "worker_connections": MAX_CONNECTIONS,
            "graceful_timeout": GRACE,
            # The worker's heartbeat: a loop that stands still for so long is killed.
            "timeout": 60,
            "keepalive": 30,
            "control_socket_disable": True,
            "logger_class": Logger,
            "proc_name": "sluice-api",
            "when_ready": self._ready,
            "worker_exit": _close,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Called in each worker."""
        app = create_app(self._settings)
        _first_look(app.extensions[EXTENSION])
        return app

    def _ready(self, _arbiter: object) -> None:
        host, port = self._listener.getsockname()[:2]
        log.info("api_ready", url=f"http://{host}:{port}")


def _first_look(deps: Deps) -> None:
    """Use the database once, so that the first request already goes by its clock."""

    def look() -> None:
        try:
            deps.database.read(lambda _connection: None)
        except StoreAwayError as exc:
            log.info("database_away_at_start", reason=str(exc))

    # Nobody is kept waiting for a database that gives no answer: requests tell of it.
    gevent.spawn(look).join(START_PATIENCE)


def _close(_server: object, worker: Any) -> None:
    if worker.wsgi is not None:
        _deps_of(worker).close()


def _deps_of(worker: Any) -> Deps:
    deps: Deps = worker.wsgi.extensions[EXTENSION]
    return deps
