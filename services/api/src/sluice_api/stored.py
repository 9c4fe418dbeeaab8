"""A stored file as a body that the event loop can send: read piece by piece in a thread."""

from __future__ import annotations

from collections.abc import Iterator

from sluice_api.threads import Threads
from sluice_core.adapters.storage import Storage


class StoredFile:
    """The form that werkzeug cuts ranges from: an iterator that can seek first."""

    def __init__(self, storage: Storage, key: str, threads: Threads) -> None:
        self._storage = storage
        self._key = key
        self._threads = threads
        self._at = 0
        self._pieces: Iterator[bytes] | None = None

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int) -> None:
        """Before the first piece only."""
        self._at = offset

    def tell(self) -> int:
        return self._at

    def __iter__(self) -> StoredFile:
        return self

    def __next__(self) -> bytes:
        if self._pieces is None:
            self._pieces = self._storage.read(self._key, start=self._at)
        pieces = self._pieces
        piece = self._threads.run(lambda: next(pieces, b""))
        if not piece:
            raise StopIteration
        self._at += len(piece)
        return piece

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
