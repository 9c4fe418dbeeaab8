"""Everything that can be found wrong before anything is started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sluice_cli.local import folder, redis
from sluice_cli.supervisor.plan import Part, Plan
from sluice_core.adapters import binaries
from sluice_core.adapters import settings as settings_module
from sluice_core.adapters.db import migrate
from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.settings import Settings
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.errors import ConfigError, StoreAwayError
from sluice_core.runtime.patience import check_storage

#: Seconds that workers give their runs when they are told to end; a setting of the same name wins.
DRAIN_GRACE = "2"
#: The services, in the order of their start.
SERVICES = ("api", "parser", "downloader", "transcoder", "scheduler")
#: Those that share most of their memory, see `nursery`. The API is another program altogether.
FORKED = SERVICES[1:]
#: Those whose children are yt-dlp.
MEDIA = ("parser", "downloader")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the supervisor is to run, and the environment to run it in."""

    plan: Plan
    environ: dict[str, str]


def prepare(
    environ: Mapping[str, str], *, host: str | None, port: int | None, temporary: bool = False
) -> Prepared:
    """Check every part and bring the database up to date; the data folder is locked on return.

    Args:
        environ: this process's environment; the parts get it with the settings made explicit.
        host: instead of `SLUICE_HTTP_HOST`.
        port: instead of `SLUICE_HTTP_PORT`; 0 takes a free one.
        temporary: others are told that this instance will not stay.

    Raises:
        ConfigError: one sentence on what is wrong; nothing was started.

    """
    settings = settings_module.load(environ, http_host=host, http_port=port)
    data = folder.prepare(settings.store.data_dir)
    held = folder.lock(data)
    try:
        prepared = _prepare(environ, settings, data)
        return replace(prepared, plan=prepared.plan._replace(temporary=temporary))
    except BaseException:
        os.close(held)
        raise


def _prepare(environ: Mapping[str, str], settings: Settings, data: Path) -> Prepared:
    bound = _free_port(settings.http.http_host, settings.http.http_port)
    binaries.ffmpeg_tools()
    if settings.jobs.ytdlp_path:
        binaries.ytdlp_folder(settings.jobs.ytdlp_path)
    redis_part, redis_url = _redis(settings, data)
    _stores(settings)
    made = {
        # Somebody waits at the terminal, and what is handed back goes on from where it was.
        "SLUICE_DRAIN_GRACE": DRAIN_GRACE,
        **environ,
        "SLUICE_DATA_DIR": str(data),
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_SITE_SECRETS_KEY": settings.sites.site_secrets_key or folder.site_secrets_key(data),
        "SLUICE_HTTP_HOST": settings.http.http_host,
        "SLUICE_HTTP_PORT": str(bound),
        # One port can't be had five times; what the API tells is of all of them.
        "SLUICE_METRICS_PORT": "",
        "SLUICE_API_METRICS_PORT": str(_metrics_port(settings)),
    }
    return Prepared(_plan(settings, data, bound, redis_part), made)


def _plan(settings: Settings, data: Path, port: int, redis_part: Part | None) -> Plan:
    forked = _forked(settings)
    nursery = (_nursery(forked),) if forked else ()
    services = tuple(
        Part(
            name=name,
            command=(sys.executable, "-m", f"sluice_{name}"),
            forked=name in forked,
        )
        for name in SERVICES
    )
    log_format = settings.log.log_format
    return Plan(
        parts=(*nursery, *((redis_part,) if redis_part else ()), *services),
        url=f"http://{_shown(settings.http.http_host)}:{port}",
        host=_reachable(settings.http.http_host),
        port=port,
        state_file=str(data / folder.STATE),
        json_lines=log_format == "json" or (log_format is None and not sys.stderr.isatty()),
    )


def _forked(settings: Settings) -> tuple[str, ...]:
    if sys.platform != "linux":
        # Elsewhere no process can adopt what another one forked.
        return ()
    # The nursery has the installed yt-dlp in its memory, and so would what is forked from it.
    own = MEDIA if settings.jobs.ytdlp_path else ()
    return tuple(name for name in FORKED if name not in own)


def _nursery(forked: tuple[str, ...]) -> Part:
    """What the others are forked from. Neither the working nor a home folder offers modules."""
    program = (sys.executable, "-P", "-s", "-m", "sluice_cli.local.nursery")
    return Part(name="nursery", command=(*program, *forked), level=0, nursery=True)


def _redis(settings: Settings, data: Path) -> tuple[Part | None, str]:
    if settings.store.redis_url:
        return None, settings.store.redis_url
    program = binaries.redis_server_path()
    socket_path = folder.socket_folder(data, name=redis.SOCKET) / redis.SOCKET
    socket_path.with_suffix(".log").unlink(missing_ok=True)
    return redis.part(program, socket_path), redis.url(socket_path)


def _stores(settings: Settings) -> None:
    storage = open_storage(settings.store.effective_storage_url)
    engine = open_engine(settings.store.effective_database_url, pool_size=1)
    try:
        migrate.upgrade(engine)
        check_storage(storage, engine)
    except StoreAwayError as exc:
        raise ConfigError(exc.sentence) from exc
    finally:
        engine.dispose()


def _free_port(host: str, port: int, name: str = "HTTP_PORT") -> int:
    """The port, proven free, or any free one for 0."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections of an instance that just ended may linger; they are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as exc:
        raise ConfigError(
            f"Port {port} of {host} can't be used ({exc.strerror});"
            f" set SLUICE_{name} to a free one, or to 0."
        ) from exc


def _metrics_port(settings: Settings) -> int:
    """Where the API is to show metrics, proven free; 0: on its own port."""
    wanted = settings.metrics.api_metrics_port or settings.metrics.metrics_port
    return _free_port(settings.metrics.metrics_host, wanted, "METRICS_PORT") if wanted else 0


def _reachable(host: str) -> str:
    """Where the host's own requests go: a wildcard is no destination."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104  # compared, not bound


def _shown(host: str) -> str:
    reachable = _reachable(host)
    return f"[{reachable}]" if ":" in reachable else reachable
