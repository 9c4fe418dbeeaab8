"""The sample site as an object: starts in a thread, ends with its context."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from . import bodies, router
from .behaviour import Controls
from .catalog import samples
from .links import Signer
from .media import MediaCache, default_cache_dir, sample_ffmpeg
from .recipes import RECIPES
from .reply import Sources
from .server import SiteServer
from .stats import SiteStats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .catalog import Sample
    from .stats import PathStats

_POLL = 0.05
_JOIN_TIMEOUT = 10.0


class SampleSite:
    """A loopback site that plays the world. Use it as a context manager.

    Args:
        cache_dir: shared store of generated media; a folder of this user's temporary one if None.
        hosts: loopback addresses to listen on, each with a port of its own unless `port` is set.
        port: 0 for a free one.
        ffmpeg: the binary that makes media; found by itself if None.
    """

    def __init__(
        self,
        *,
        cache_dir: Path | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        ffmpeg: Path | None = None,
    ) -> None:
        self._cache = MediaCache(cache_dir or default_cache_dir(), ffmpeg=ffmpeg or sample_ffmpeg())
        self._hosts = tuple(hosts)
        self._port = port
        self._sources = Sources(
            media=self._cache, signer=Signer(secrets.token_bytes(16)), started=time.time()
        )
        self._stats = SiteStats()
        self._controls = Controls()
        self._servers: list[SiteServer] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen on every host.

        Raises:
            OSError: an address can't be bound; nothing is left listening then.
        """
        try:
            for host in self._hosts:
                server = SiteServer(
                    (host, self._port),
                    sources=self._sources,
                    controls=self._controls,
                    stats=self._stats,
                )
                self._servers.append(server)
        except OSError:
            self.close()
            raise
        for server in self._servers:
            thread = threading.Thread(
                target=server.serve_forever, args=(_POLL,), name="sample-site", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        for server in self._servers if self._threads else ():
            server.shutdown()
        for server in self._servers:
            server.server_close()
            server.end_connections(_JOIN_TIMEOUT)
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT)
        self._servers.clear()
        self._threads.clear()

    def url(self, path: str = "/", *, host: int = 0) -> str:
        """Absolute address of a path, on the host of that index."""
        return f"http://{self.address(host=host)}{path}"

    def address(self, *, host: int = 0) -> str:
        """`address:port` of the host of that index, as `SLUICE_EGRESS_ALLOW` takes it."""
        address, port = self._servers[host].server_address[:2]
        return f"[{address!s}]:{port}" if ":" in str(address) else f"{address!s}:{port}"

    def kinds(self, *, host: int = 0) -> tuple[Sample, ...]:
        """Every kind of link, absolute, with what to expect of it."""
        return tuple(replace(s, url=self.url(s.url, host=host)) for s in samples())

    def sample(self, kind: str, *, host: int = 0) -> Sample:
        """One kind.

        Raises:
            KeyError: there is no such kind.
        """
        return {s.kind: s for s in self.kinds(host=host)}[kind]

    def size(self, path: str) -> int:
        """Bytes of the whole body of a path.

        Raises:
            NoSuchPathError: nothing is there.
            ValueError: the body has no end.
        """
        size = router.answer_link(self._sources, path).body.size
        if size is None:
            raise ValueError(f"{path} has no end")
        return size

    def sha256(self, path: str) -> str:
        """Digest of the whole body of a path; raises as `size` does."""
        return bodies.sha256(router.answer_link(self._sources, path).body)

    def control(self, path: str, **params: object) -> None:
        """Give all paths that match the shell pattern these parameters; none takes them back.

        `type` and `with` and the like are passed as `**{"with": ...}`.
        """
        self._controls.set(path, {name: str(value) for name, value in params.items()})

    def stats(self, path: str) -> PathStats:
        """What was asked of a path; of one exact link when a query is given."""
        return self._stats.of(path)

    def all_stats(self) -> dict[str, PathStats]:
        return self._stats.all()

    def reset(self) -> None:
        """Forget all counts and control rules."""
        self._stats.reset()
        self._controls.clear()

    def cut(self, path: str | None = None) -> int:
        """Cut the open connections that asked last for a path, or all; returns how many."""
        return sum(server.cut_connections(path) for server in self._servers)

    def prepare(self) -> None:
        """Make all media now, so that no later request pays for it."""
        for recipe in RECIPES:
            self._cache.ensure(recipe)


def named_path(name: str) -> str:
    """Path of a small MP4 whose file name is anything at all."""
    return f"/named/{quote(name, safe='')}.mp4"
