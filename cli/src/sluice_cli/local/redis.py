"""The embedded Redis: how it is started. It keeps nothing, since the database is the truth."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from sluice_cli.supervisor.plan import Part

SOCKET = "redis.sock"
#: Bytes: the event stream (about 10 MB), ids of what waits, and room to spare.
MAX_MEMORY = 256 * 1024 * 1024


def part(program: Path, socket: Path) -> Part:
    """The server as a part: reachable through a socket in a folder of the owner's alone."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(socket.parent),
        # Not the console: each start warns of kernel settings that only snapshots would need.
        "logfile": str(socket.with_suffix(".log")),
        "save": "",
        "appendonly": "no",
        "maxmemory": str(MAX_MEMORY),
        "maxmemory-policy": "noeviction",
        "databases": "4",
        "loglevel": "warning",
        "daemonize": "no",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return Part(
        name="redis",
        command=(str(program), *words),
        level=0,
        socket=str(socket),
        log=options["logfile"],
    )


def url(socket: Path) -> str:
    """What clients are given as `SLUICE_REDIS_URL`."""
    return f"unix://{quote(str(socket))}?db=0"
