"""Runs the API: gunicorn with gevent, one worker process, until SIGTERM or SIGINT.

Only the standard library is imported before the standard library is patched.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import socket
import sys

from gevent import monkey

EXIT_CONFIG = 2
#: Milliseconds after which a peer that takes nothing is given up: longer than a paused player's
#: patience, shorter than the kernel's.
PEER_PATIENCE = 120_000
#: Descriptors beside those of connections: stores, logs, stored files.
SPARE_FILES = 256


def main() -> None:
    """Serve; exits the process, with 2 and one sentence when something is set wrongly."""
    # Before anything else is imported: what has a socket or lock in hand can't be patched.
    monkey.patch_all()
    # The database is asked in real threads, which are to wait there and not in an event loop each.
    os.environ.setdefault("PSYCOPG_WAIT_FUNC", "wait_c")
    from sluice_core.domain.errors import ConfigError  # noqa: PLC0415

    try:
        _serve()
    except ConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        sys.exit(EXIT_CONFIG)


def _serve() -> None:
    # The parent loads the code once, so that workers share its pages; stores are opened by them.
    from sluice_api.deps import check_settings  # noqa: PLC0415
    from sluice_api.measure import port as metrics_port  # noqa: PLC0415
    from sluice_api.server import MAX_CONNECTIONS, Server  # noqa: PLC0415
    from sluice_core.adapters import logs, settings  # noqa: PLC0415

    loaded = settings.load()
    logs.configure(level=loaded.log.log_level, log_format=loaded.log.log_format, process="api")
    _unpatch_shared_locks()
    check_settings(loaded)
    listener = listen(loaded.http.http_host, loaded.http.http_port)
    own = metrics_port(loaded.metrics)
    metrics = listen(loaded.metrics.metrics_host, own, setting="METRICS_PORT") if own else None
    _raise_file_limit(MAX_CONNECTIONS + SPARE_FILES)
    gc.collect()
    gc.freeze()
    Server(loaded, listener, metrics).run()


def _unpatch_shared_locks() -> None:
    """Give real locks to what real threads share: ids and log lines.

    A lock of gevent's that two threads want may never open (gevent's issue 1744). Nothing gives way
    while it holds one of these, so that a real lock stops nobody for long.
    """
    import ulid  # noqa: PLC0415  # see `main`

    # Of `_thread`: what `threading` makes is built of patched parts.
    make = monkey.get_original("_thread", "RLock")
    ulid.default_generator.lock = make()
    logging._lock = make()  # type: ignore[attr-defined]  # noqa: SLF001  # taken by each `getLogger`
    for handler in logging.getLogger().handlers:
        handler.lock = make()


def listen(host: str, port: int, *, setting: str = "HTTP_PORT") -> socket.socket:
    """A listening socket, handed to the workers.

    Args:
        host: to bind to.
        port: 0 takes any free one.
        setting: what to change when it can't be had, without prefix.

    Raises:
        ConfigError: the address can't be had.

    """
    from sluice_core.domain.errors import ConfigError  # noqa: PLC0415  # see `main`

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by accepted connections.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_PATIENCE)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as exc:
        listener.close()
        raise ConfigError(
            f"Port {port} of {host} can't be had: {exc.strerror or exc}. "
            f"Set SLUICE_{setting} to a free one."
        ) from exc
    os.set_inheritable(listener.fileno(), True)  # noqa: FBT003  # the function's own form
    return listener


def _raise_file_limit(wanted: int) -> None:
    """Each stream holds a descriptor; the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
