"""Room on the disk: asked for before a download, watched while it runs, freed when it was short.

A reserve stays free for everything else on the machine, the embedded database before all.
"""

from __future__ import annotations

import errno
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import structlog

from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children.spec import LOCK_NAME
from sluice_core.runtime.deps import StageDeps

log = structlog.get_logger(__name__)

#: Share of the reserve at which running work gives way; new work is refused at the whole of it, so
#: that an estimate that was a little low ends nothing.
LOW_WATER = 0.5
_MIB = 1024 * 1024
#: What the system says of a full disk or a used-up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)


def free_bytes(folder: Path) -> int:
    """What an unprivileged process may still write there."""
    return shutil.disk_usage(folder).free


def free_within(size: int) -> Callable[[Path], int]:
    """As `free_bytes`, where a folder may hold so many bytes and no more, whatever the disk has.

    Args:
        size: e.g. that of a pod's volume, which is only counted and ends the pod when it is over;
            0 for as much as the disk takes.

    """

    def left(folder: Path) -> int:
        return min(free_bytes(folder), size - _held(folder))

    return left if size else free_bytes


def _held(folder: Path) -> int:
    """Bytes of all runs' files, of which some go meanwhile."""
    held = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.lstat()
            held += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return held


def open_disk(deps: StageDeps) -> Disk:
    """The disk on which a process' runs work."""
    store = deps.settings.store
    return Disk(
        store.scratch_dir,
        deps.storage,
        reserve=store.min_free_bytes,
        free=free_within(store.scratch_size),
    )


class Disk:
    """The room of one process' scratch folder, shared by its runs.

    Args:
        folder: where runs have their scratch folders.
        storage: where finished files go, perhaps on another disk.
        reserve: bytes that stay free.
        free: how much is left in a folder.

    """

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        *,
        reserve: int,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._folder = folder
        self._storage = storage
        self._reserve = reserve
        self._free = free
        self._lock = Lock()
        self._rooms: set[Room] = set()

    @contextmanager
    def room(
        self, scratch: Path, *, whole: int | None, stored: int | None = None
    ) -> Iterator[Room]:
        """Room for a run's files, for as long as the block lasts.

        What other runs of this process were promised is not given away twice. When the disk turns
        out to be full inside the block, the run's temporary files are removed and the failure says
        so.

        Args:
            scratch: the run's own folder; what lies there already needs no more room.
            whole: bytes that the run's files will have in the end, as far as is known; None when
                it may write nothing, and will say so if it does.
            stored: bytes that go into storage; as many unless it is said.

        Raises:
            SluiceError: `disk_full`, before anything was written or while the block ran.

        """
        room = Room(self, scratch, whole or 0)
        with freeing(scratch):
            try:
                self._admit(room, writes=whole is not None)
                self.admit_storage(room, (whole or 0) if stored is None else stored)
                yield room
            finally:
                with self._lock:
                    self._rooms.discard(room)

    def _admit(self, room: Room, *, writes: bool) -> None:
        with self._lock:
            promised = sum(other.left for other in self._rooms)
            needed = room.left + promised
            free = self._free(self._folder)
            if writes and free < needed + self._reserve:
                raise _short(needed, free, self._reserve)
            self._rooms.add(room)

    def admit_storage(self, room: Room, stored: int) -> None:
        """Raise `disk_full` when a storage with a disk of its own has no room for so many bytes."""
        if self._storage.shares_disk(room.scratch):
            return
        left = self._storage.free_bytes()
        if left is not None and left < stored + self._reserve:
            words = f"the storage needs {_mib(stored)} and has {_mib(left)}"
            raise _full(words, self._reserve)

    def raise_promise(self, room: Room, left: int) -> None:
        """Promise more than before: a run learned how large its files are.

        Raises:
            SluiceError: `disk_full`, so much is not there.

        """
        with self._lock:
            needed = left + sum(other.left for other in self._rooms if other is not room)
            free = self._free(self._folder)
            if free < needed + self._reserve:
                raise _short(needed, free, self._reserve)
            room.left = left

    def check(self) -> None:
        """Raise `disk_full` when the reserve is being eaten up."""
        free = self._free(self._folder)
        if free < self._reserve * LOW_WATER:
            raise _full(f"only {_mib(free)} are left", self._reserve)


class Room:
    """What one run was promised."""

    def __init__(self, disk: Disk, scratch: Path, whole: int) -> None:
        self._disk = disk
        self.scratch = scratch
        #: Bytes still to come.
        self.left = max(0, whole - used_bytes(scratch))

    def written(self, *, done: int, whole: int | None) -> None:
        """Told as files grow, some times a second; each time the disk is looked at.

        Args:
            done: bytes of the run's files so far.
            whole: bytes that they will have in the end; None while that is not known, an estimate
                is no knowledge.

        Raises:
            SluiceError: `disk_full`.

        """
        if whole is not None:
            left = max(0, whole - done)
            if left > self.left:
                self._disk.raise_promise(self, left)
            self.left = left
        self._disk.check()

    def stored(self, more: int) -> None:
        """Told before so many bytes more than was asked for go into storage.

        Raises:
            SluiceError: `disk_full`.

        """
        self._disk.admit_storage(self, more)


@contextmanager
def freeing(scratch: Path) -> Iterator[None]:
    """When the block ends for want of room, remove the run's temporary files and say so."""
    try:
        yield
    except SluiceError as exc:
        if exc.code != "disk_full":
            raise
        raise _freed(scratch, exc.message) from exc
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        raise _freed(scratch, str(exc.strerror)) from exc


def _freed(scratch: Path, message: str) -> SluiceError:
    size = used_bytes(scratch)
    for path in _files(scratch):
        path.unlink(missing_ok=True)
    log.warning("disk_full", scratch=scratch.name, freed_bytes=size, reason=message)
    said = f"; {_mib(size)} of temporary files were removed" if size >= _MIB else ""
    return SluiceError(message + said, code="disk_full")


def used_bytes(scratch: Path) -> int:
    """Bytes of a run's files."""
    return sum(path.stat().st_size for path in _files(scratch))


def _files(scratch: Path) -> list[Path]:
    # The lock tells others whether a child lives, and takes no room.
    return [p for p in scratch.rglob("*") if p.is_file() and p.name != LOCK_NAME]


def _short(needed: int, free: int, reserve: int) -> SluiceError:
    # How large a file is may not be known yet.
    words = f"{_mib(needed)} are needed and {_mib(free)} are free"
    return _full(words if needed >= _MIB else f"only {_mib(free)} are free", reserve)


def _full(words: str, reserve: int) -> SluiceError:
    return SluiceError(f"{words}; {_mib(reserve)} stay in reserve", code="disk_full")


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"
