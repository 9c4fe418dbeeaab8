"""Saves a growing partial file, beside the download and never in its way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from enum import StrEnum
from pathlib import Path
from threading import Event, Lock, Thread

import structlog

from sluice_core.adapters.storage import Storage
from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.paths import RunId, partial_prefix
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.pieces.cut import Cut, copy_range, look
from sluice_core.runtime.pieces.manifest import PIECE, Manifest, Piece, manifest_key, piece_key

log = structlog.get_logger(__name__)

#: Seconds between two looks at the file.
LOOK_EVERY = 0.25
#: Longest pause after a storage that refused, seconds.
PAUSE_CAP = 30.0
#: Places to cut that are remembered while the storage is slower than the download.
MAX_CUTS = 1024


class Owner(StrEnum):
    """Who owns the job now."""

    SELF = "self"
    #: Another run, which may go on from what this one saved.
    OTHER = "other"
    #: Nobody: it is done, canceled or deleted, and its sweep may have been here.
    NOBODY = "nobody"


class _LostError(Exception):
    """The job is no longer this run's."""


class Saver:
    """Saves one file of one run in a thread of its own.

    A failure is a warning, and another try later; it never becomes one of the download.

    Args:
        storage: where to.
        run: whose keys are written.
        file: what grows, in the run's scratch folder.
        owner: who owns the job, asked about each piece.
        failpoints: `download.mid_piece` lies between a piece's upload and its registration.
        known: what is saved already of the file that is continued.
        piece: least bytes of a piece.

    """

    def __init__(
        self,
        *,
        storage: Storage,
        run: RunId,
        file: PartialFile,
        owner: Callable[[], Owner],
        failpoints: Failpoints,
        known: Manifest | None = None,
        piece: int = PIECE,
    ) -> None:
        self._storage = storage
        self._run = run
        self._file = file
        self._owner = owner
        self._failpoints = failpoints
        self._manifest = known
        self._piece = piece
        self._cuts: deque[Cut] = deque()
        self._lock = Lock()
        self._told = Event()
        self._flush = False
        self._failures = 0
        # Its log lines are the run's.
        self._thread = Thread(
            target=copy_context().run, args=(self._guarded,), name="saver", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Remember where the file can be cut now; cheap, for the thread that reads the child."""
        cut = look(self._file)
        if cut is None:
            return
        with self._lock:
            if self._cuts and self._cuts[-1].generation != cut.generation:
                self._cuts.clear()
            if self._replaces_last(cut):
                self._cuts.pop()
            self._cuts.append(cut)

    def _replaces_last(self, cut: Cut) -> bool:
        """Whether nothing is lost when the last place is forgotten for a later one."""
        if not self._cuts:
            return False
        before = self._cuts[-2].end if len(self._cuts) > 1 else self._saved(cut.generation)
        whole = self._cuts[-1].end - before >= self._piece
        return cut.note is None or not whole or len(self._cuts) >= MAX_CUTS

    def stop(self, *, flush: float = 0.0, hurry: Callable[[], bool] = lambda: False) -> bool:
        """End: at once, or with all that there is saved, if that takes no longer than `flush` s.

        An upload under way is left to its thread, which ends after it and cleans up behind itself
        when the job is over.

        Args:
            flush: seconds; the file must have stopped growing.
            hurry: asked meanwhile; true: no longer worth a wait.

        Returns:
            whether the thread has ended.
        """
        if flush:
            self.look()
            self._flush = True
        self._told.set()
        deadline = time.monotonic() + flush
        while self._thread.is_alive() and time.monotonic() < deadline and not hurry():
            self._thread.join(0.05)
        # Whoever did not get through by now goes no further than its upload.
        self._flush = False
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self._loop()
        except _LostError:
            log.info("saving_ended", reason="the job is no longer this run's")
        except Exception:
            # A thread of its own: nobody else could tell of it.
            log.exception("saving_crashed")

    def _loop(self) -> None:
        while not self._told.wait(self._pause()):
            self.look()
            self._save_all()
        while self._flush and self._save_one():
            pass
        self._leave()

    def _pause(self) -> float:
        return min(PAUSE_CAP, LOOK_EVERY * float(2 ** min(self._failures, 10)))

    def _save_all(self) -> None:
        while not self._told.is_set() and self._save_one():
            pass

    def _save_one(self) -> bool:
        """Save the next piece; False when there is none, or it could not be saved now."""
        found = self._next()
        if found is None:
            return False
        cut, start, end = found
        temporary = self._file.dest.with_name(f"{self._file.dest.name}.piece")
        try:
            return self._upload(cut, start, end, temporary)
        except (SluiceError, OSError) as exc:
            self._failures += 1
            level = log.debug if self._told.is_set() else log.warning
            level("piece_not_saved", error=str(exc), failures=self._failures)
            return False
        finally:
            temporary.unlink(missing_ok=True)

    def _next(self) -> tuple[Cut, int, int] | None:
        """The cut, first byte and end of the next piece."""
        least = 1 if self._flush else self._piece
        with self._lock:
            while self._cuts:
                cut = self._cuts[0]
                start = self._saved(cut.generation)
                if cut.end - start >= least:
                    end = min(cut.end, start + self._piece) if cut.note is None else cut.end
                    return cut, start, end
                if len(self._cuts) == 1:
                    return None
                self._cuts.popleft()
        return None

    def _saved(self, generation: str) -> int:
        manifest = self._manifest
        if manifest is None or manifest.state.generation != generation:
            return 0
        return manifest.length

    def _upload(self, cut: Cut, start: int, end: int, temporary: Path) -> bool:
        name = self._file.dest.name
        temporary.unlink(missing_ok=True)
        checksum = copy_range(self._file, cut, start, end, temporary)
        if checksum is None:
            self._forget(cut)
            return False
        key = piece_key(self._run, name, cut.generation, start, end)
        self._storage.put(key, temporary)
        self._failpoints.hit("download.mid_piece")
        self._check_owner(key)
        self._register(cut, Piece(key, end - start, checksum), temporary)
        self._check_owner()
        self._failures = 0
        log.debug("piece_saved", name=name, bytes=end)
        return True

    def _forget(self, cut: Cut) -> None:
        """The file has begun anew since."""
        with self._lock:
            while self._cuts and self._cuts[0].generation == cut.generation:
                self._cuts.popleft()

    def _register(self, cut: Cut, piece: Piece, temporary: Path) -> None:
        old = self._manifest
        same = old is not None and old.state.generation == cut.generation
        before = old if old is not None and same else Manifest((), cut.state, None)
        manifest = before.with_piece(piece, state=cut.state, note=cut.note)
        temporary.unlink(missing_ok=True)
        temporary.write_bytes(manifest.dumps())
        self._storage.put(manifest_key(self._run, self._file.dest.name), temporary)
        self._manifest = manifest
        if old is not None and not same:
            self._drop_own(old)

    def _drop_own(self, old: Manifest) -> None:
        """Remove pieces of a file that is no longer the site's, unless they are another run's."""
        prefix = partial_prefix(self._run)
        for piece in old.pieces:
            if piece.key.startswith(prefix):
                self._storage.delete(piece.key)

    def _check_owner(self, unregistered: str | None = None) -> None:
        """Go no further for a job that is not this run's, and leave nothing that nobody needs.

        Args:
            unregistered: key of a piece that no manifest names yet.

        Raises:
            _LostError: the job has another owner, or none.

        """
        owner = self._owner()
        if owner is Owner.SELF:
            return
        if owner is Owner.NOBODY:
            self._remove_all()
        elif unregistered is not None:
            self._storage.delete(unregistered)
        raise _LostError

    def _leave(self) -> None:
        if self._owner() is Owner.NOBODY:
            self._remove_all()

    def _remove_all(self) -> None:
        """The job is over: its sweep may have come by before the last upload ended."""
        try:
            for key in list(self._storage.keys(partial_prefix(self._run))):
                self._storage.delete(key)
        except SluiceError as exc:
            log.warning("remove_failed", prefix=partial_prefix(self._run), error=exc.message)
