"""The storage of the run: to take it away, and to read it in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from sluice_core.adapters.storage import Storage, open_storage
from sluice_testing.gate import Gate
from sluice_testing.s3 import S3Server, running_weed
from tests.chaos.exchange import exchange
from tests.chaos.stores import Undo


class Shelf(Protocol):
    """Breakable in its own way."""

    @property
    def url(self) -> str:
        """As the system is told."""

    @property
    def storage(self) -> Storage:
        """For the run's own eyes."""

    def take_away(self) -> Undo:
        """Make it unusable until the returned function is called."""


class Folder:
    """Taken away by a file that stands where it was: nothing can be read or written there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root.mkdir(parents=True)

    @property
    def url(self) -> str:
        return f"file://{quote(str(self._root))}"

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self.url)

    def take_away(self) -> Undo:
        wall = Path(f"{self._root}.away")
        wall.write_bytes(b"")
        exchange(self._root, wall)

        def give_back() -> None:
            exchange(self._root, wall)
            wall.unlink()

        return give_back


class S3:
    """A server behind a gate; taken away by shutting that."""

    def __init__(self, server: S3Server, gate: Gate) -> None:
        self._gate = gate
        self._bucket = server.new_bucket("chaos")
        self._here = quote(server.endpoint, safe="")

    @property
    def url(self) -> str:
        return self._bucket.replace(
            self._here, quote(f"http://127.0.0.1:{self._gate.port}", safe="")
        )

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self._bucket)

    def take_away(self) -> Undo:
        self._gate.shut()
        return self._gate.open


@contextmanager
def open_shelf(kind: str, folder: Path) -> Iterator[Shelf]:
    """`folder` or `s3`; to be called in the main thread, whose end ends the server."""
    if kind == "folder":
        yield Folder(folder / "storage")
        return
    folder.mkdir(parents=True)
    with running_weed(folder) as server:
        gate = Gate(server.port)
        gate.open()
        try:
            yield S3(server, gate)
        finally:
            gate.shut()
