"""Finished segments in storage, where the next run of the job finds them, here or elsewhere.

Their keys::

    work/<job>/segments.<epoch>/<fingerprint>/<number>-<bytes>-<sha256>.mp4

A segment is put there whole, under a name that says what is in it, and never changed: so it may be
used without a look at whether its writer is gone. A run adds to its own epoch only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from sluice_core.domain.paths import RunId, segments_prefix, work_prefix
from sluice_core.runtime.pieces import Owner
from sluice_transcoder.digest import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from sluice_core.adapters.storage import Storage

log = structlog.get_logger(__name__)

_KEY = re.compile(
    r"segments\.(?P<epoch>\d+)/(?P<fingerprint>[0-9a-f]+)"
    r"/(?P<number>\d+)-(?P<bytes>\d+)-(?P<sha256>[0-9a-f]{64})\.mp4"
)


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """One segment in storage."""

    key: str
    bytes: int
    sha256: str


def segment_at(key: str) -> KeptSegment:
    """The segment that lies under a key.

    Raises:
        ValueError: no segment is named so.

    """
    match = _KEY.search(key)
    if match is None:
        raise ValueError(f"{key} is no segment's key")
    return _segment(match, key)


def _segment(match: re.Match[str], key: str) -> KeptSegment:
    return KeptSegment(key, int(match["bytes"]), match["sha256"])


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where one run keeps its segments and finds those of earlier ones.

    Attributes:
        storage: of the job.
        run: whose keys are written.
        scratch: for copies of what lies in a storage elsewhere.
        owner: who owns the job now.

    """

    storage: Storage
    run: RunId
    scratch: Path
    owner: Callable[[], Owner]

    def find(self, fingerprint: str) -> dict[int, KeptSegment]:
        """Number -> segment of the same encode; of several the newest.

        Raises:
            SluiceError: the storage can't be read.

        """
        keys = self.storage.keys(work_prefix(self.run.job_id))
        found = [(match, key) for key in keys if (match := _KEY.search(key))]
        return {
            int(match["number"]): _segment(match, key)
            for match, key in sorted(found, key=lambda pair: int(pair[0]["epoch"]))
            if match["fingerprint"] == fingerprint
        }

    def bring(self, kept: KeptSegment, stack: ExitStack) -> Path | None:
        """A local path of a segment, for as long as the stack lasts; None: it is not what it was.

        Raises:
            SluiceError: the storage can't be read, or this machine has no room.

        """
        found = self.storage.stat(kept.key)
        if found is None or found.bytes != kept.bytes:
            log.warning("segment_unusable", key=kept.key)
            return None
        path = stack.enter_context(self.storage.local(kept.key, self.scratch))
        if sha256_of(path) != (kept.sha256, kept.bytes):
            log.warning("segment_unusable", key=kept.key)
            return None
        return path

    def keep(self, fingerprint: str, number: int, path: Path) -> str:
        """Store a finished segment; returns its key.

        Raises:
            SluiceError: the storage refuses.

        """
        digest, size = sha256_of(path)
        key = f"{segments_prefix(self.run)}{fingerprint}/{number:05d}-{size}-{digest}.mp4"
        self.storage.put(key, path)
        if self.owner() is Owner.NOBODY:
            # The job is over: its sweep may have come by before this upload ended.
            self._remove_own()
        return key

    def _remove_own(self) -> None:
        for key in list(self.storage.keys(segments_prefix(self.run))):
            self.storage.delete(key)
