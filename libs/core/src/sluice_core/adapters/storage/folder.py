"""Storage in a folder: links where it can, copies where it must, never half a file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sluice_core.adapters.ids import new_id
from sluice_core.adapters.storage.base import Stat, Unfinished, key_parts
from sluice_core.domain.errors import ConfigError, NotYetError, SluiceError

_PIECE = 1024 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT}
#: Beside the files, on the same filesystem, so that the last step is a rename. It also tells a
#: storage from the empty folder on which its disk is not mounted.
_INCOMING = ".incoming"
#: Between the folders of a key, and before what makes an incoming file's name its own.
_MARK = "~"
#: Folders of a key that an incoming file's name tells: those that say whose it is.
_TOLD = 3
#: Bytes of a name that they may take.
_TOLD_BYTES = 150
#: One name for all: who is killed while it checks leaves no more than this.
_PROBE = "probe"


@contextmanager
def mapped() -> Iterator[None]:
    """Turns the operating system's refusals into ours."""
    try:
        yield
    except OSError as exc:
        code = "disk_full" if exc.errno in _FULL else "storage_error"
        raise SluiceError(f"storage: {exc.strerror or exc}", code=code) from exc


class FolderStorage:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._was_there = False

    @property
    def outlives_machine(self) -> bool:
        return False

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key_parts(key))

    def _incoming(self) -> Path:
        """Where files come in; made with the root at first.

        Not later: a root that is away would be made anew, and hide what comes back; files would
        fill the disk below a mount point.
        """
        incoming = self._root / _INCOMING
        if not self._was_there:
            incoming.mkdir(parents=True, exist_ok=True)
            self._was_there = True
        elif not incoming.is_dir():
            raise FileNotFoundError(errno.ENOENT, self._unmounted())
        return incoming

    def _unmounted(self) -> str:
        return f"there is no {_INCOMING} in {self._root}; is its disk mounted?"

    def put(self, key: str, path: Path) -> None:
        target = self._path(key)
        with mapped():
            temporary = self._incoming() / _incoming_name(key)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _link_or_copy(path, temporary)
                _sync(temporary)
                temporary.replace(target)
                _sync(target.parent)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def local(self, key: str, scratch: Path) -> Iterator[Path]:
        del scratch
        path = self._path(key)
        self._must_hold(key)
        try:
            yield path
        except SluiceError as exc:
            # Whoever could not read it may have taken it for bad: that would be for ever.
            try:
                self._must_hold(key)
            except SluiceError as away:
                raise away from exc
            raise

    def _must_hold(self, key: str) -> None:
        if not self._path(key).is_file():
            raise SluiceError(f"storage: {key} is missing", code="storage_error")

    def _must_be_there(self) -> None:
        """Nothing found is an answer of the folder only while the folder is there.

        Raises:
            SluiceError: it is away, e.g. not mounted: a sweep must not take it for an empty one.

        """
        if not (self._root / _INCOMING).is_dir():
            raise SluiceError(f"storage: {self._unmounted()}", code="storage_error")

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with mapped():
            try:
                file = self._path(key).open("rb")
            except FileNotFoundError:
                self._must_be_there()
                return
            with file:
                yield from _pieces(file, start, length)

    def stat(self, key: str) -> Stat | None:
        with mapped():
            try:
                found = self._path(key).stat()
            except FileNotFoundError:
                self._must_be_there()
                return None
        etag = f"{found.st_mtime_ns:x}-{found.st_size:x}"
        return Stat(found.st_size, found.st_mtime, etag)

    def keys(self, prefix: str) -> Iterator[str]:
        folder = self._path(prefix.rstrip("/"))
        with mapped():
            for parent, _folders, names in os.walk(folder, onerror=_raise_unless_missing):
                for name in names:
                    yield Path(parent, name).relative_to(self._root).as_posix()
        self._must_be_there()

    def delete(self, key: str) -> None:
        path = self._path(key)
        with mapped():
            try:
                path.unlink()
            except FileNotFoundError:
                self._must_be_there()
        # Folders of a run go with their last file; one that another run fills stays.
        for parent in path.parents:
            if parent == self._root:
                return
            try:
                parent.rmdir()
            except OSError:
                return

    def presigned(self, key: str, *, name: str, content_type: str, seconds: int) -> str | None:
        del key, name, content_type, seconds
        return None

    def unfinished(self) -> Iterator[Unfinished]:
        incoming = self._root / _INCOMING
        with mapped():
            for path in list(incoming.iterdir()) if incoming.is_dir() else ():
                if path.name == _PROBE:
                    continue
                with suppress(FileNotFoundError):
                    # A link keeps the time of its content; the change of its name count is new.
                    began_at = path.stat().st_ctime
                    yield Unfinished(_folders_of(path.name), began_at, path.name)
        self._must_be_there()

    def abort(self, unfinished: Unfinished) -> None:
        [name] = key_parts(unfinished.handle)
        with mapped():
            (self._root / _INCOMING / name).unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        with mapped():
            return shutil.disk_usage(self._root).free

    def shares_disk(self, folder: Path) -> bool:
        with mapped():
            return folder.stat().st_dev == self._root.stat().st_dev

    def check(self, *, used: bool = False) -> None:
        if used and not (self._root / _INCOMING).is_dir():
            raise NotYetError(
                f"Files were stored in {self._root}, but {self._unmounted()}"
                f" If this is the right folder, make {_INCOMING} in it."
            )
        try:
            probe = self._incoming() / _PROBE
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"The storage folder {self._root} can't be written: {exc.strerror}."
            ) from exc


def _incoming_name(key: str) -> str:
    """A name that nobody else has, and that tells whose file it is where that fits."""
    folders = key_parts(key)[:-1][:_TOLD]
    told = _MARK.join(folders)
    if any(_MARK in folder for folder in folders) or len(os.fsencode(told)) > _TOLD_BYTES:
        told = ""
    return f"{told}{_MARK}{new_id()}"


def _folders_of(name: str) -> str:
    """The folders that `_incoming_name` told, each with `/` behind it."""
    return "".join(f"{folder}/" for folder in name.split(_MARK)[:-1] if folder)


def _pieces(file: BinaryIO, start: int, length: int | None) -> Iterator[bytes]:
    file.seek(start)
    left = length
    while left is None or left > 0:
        piece = file.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            return
        yield piece
        if left is not None:
            left -= len(piece)


def _raise_unless_missing(error: OSError) -> None:
    # What others delete meanwhile is of no interest.
    if not isinstance(error, FileNotFoundError):
        raise error


def _link_or_copy(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError as exc:
        # Another filesystem, or one without hard links (NFS, FAT, some containers).
        if exc.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}:
            raise
        shutil.copyfile(path, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
