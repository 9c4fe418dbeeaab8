"""The interface of a storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a stored file."""

    bytes: int
    #: Unix seconds.
    modified_at: float
    etag: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What half a `put` left; or one that is under way."""

    #: The key, or the folders that it begins with; empty when it can't be told.
    key: str
    #: Unix seconds.
    began_at: float
    #: The storage's own name for it.
    handle: str


class Storage(Protocol):
    """Keys are relative paths with `/`, made by `sluice_core.domain.paths` only.

    Every method raises `SluiceError` with code `storage_error` (or `disk_full`) when the storage
    does not do its work; a missing key is None or nothing, never an error.
    """

    @property
    def outlives_machine(self) -> bool:
        """Whether files are safe here when this machine is lost: partial work is worth saving."""

    def put(self, key: str, path: Path) -> None:
        """Make the file's content visible under the key, whole or not at all.

        The local file may be linked instead of copied: it must not be changed afterwards.
        """

    def local(self, key: str, scratch: Path) -> AbstractContextManager[Path]:
        """A local path with the content, for reading only; fetched into `scratch` if need be."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The content in pieces of at most 1 MiB. Nothing when the key is missing."""

    def stat(self, key: str) -> Stat | None: ...

    def keys(self, prefix: str) -> Iterator[str]:
        """All keys that begin with the prefix, which ends with `/`."""

    def delete(self, key: str) -> None:
        """Idempotent."""

    def presigned(self, key: str, *, name: str, content_type: str, seconds: int) -> str | None:
        """An address from which a browser can fetch the file by itself; None: serve it."""

    def unfinished(self) -> Iterator[Unfinished]:
        """What killed puts left, and puts under way: nobody can tell them apart here."""

    def abort(self, unfinished: Unfinished) -> None:
        """Drop what half a `put` left; one that is under way fails. Idempotent."""

    def free_bytes(self) -> int | None:
        """Space left; None when there is no such limit."""

    def shares_disk(self, folder: Path) -> bool:
        """Whether a file of that folder can be stored without taking any further room."""

    def check(self, *, used: bool = False) -> None:
        """Raises `ConfigError` with one sentence when the storage can't be written.

        Args:
            used: files were stored here: one that was never written is another one.

        """


def key_parts(key: str) -> list[str]:
    """The folders and the name of a key.

    Raises:
        ValueError: it is none: empty, absolute, or one that leads out of the storage.

    """
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"not a storage key: {key!r}")
    return parts
