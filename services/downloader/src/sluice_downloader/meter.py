"""Progress of several tracks as one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sluice_core.domain.job import Progress


class Meter:
    """Adds up what the tracks of one job report.

    Args:
        sizes: bytes of each track as the plan says; None where the site does not.

    """

    def __init__(self, sizes: Sequence[int | None]) -> None:
        self._sizes: list[int | None] = list(sizes)
        self._done = [0] * len(sizes)
        self._told = [False] * len(sizes)
        self._current = 0
        self._left_out = 0
        #: Bytes that arrived.
        self.fetched = 0
        #: Bytes that were here once and had to come again.
        self.refetched = 0

    @property
    def position(self) -> tuple[int, int, int]:
        """Changes whenever bytes arrive, or are known not to come."""
        return self._current, sum(self._done), self._left_out

    @property
    def size_was_told(self) -> bool:
        """Whether the site named the exact size of the current track while it was fetched."""
        return self._told[self._current]

    def begin(self, number: int) -> None:
        """The next reports are of this track."""
        self._current = number

    def resumed(self, size: int) -> None:
        """So many bytes of the track are here from an earlier run."""
        self._set(size)

    def left_out(self, fragments: int) -> None:
        """So many fragments of the track are missing for good."""
        self._left_out = fragments

    def finished(self, size: int) -> Progress:
        """The track is whole, and has so many bytes, whatever was said of it before."""
        self._arrived(size)
        self._done[self._current] = self._sizes[self._current] = size
        return self._progress(None)

    def read(self, report: Mapping[str, Any]) -> Progress:
        """Take one report of the child and give the whole job's progress.

        Args:
            report: `bytes`, `total` or None, `estimated`, `speed` in bytes per second or None.
        """
        self._arrived(int(report["bytes"]))
        self._set(int(report["bytes"]))
        if report.get("total"):
            self._sizes[self._current] = int(report["total"])
            self._told[self._current] = not report.get("estimated")
        return self._progress(report.get("speed"))

    def _arrived(self, size: int) -> None:
        self.fetched += max(0, size - self._done[self._current])

    def _set(self, size: int) -> None:
        self.refetched += max(0, self._done[self._current] - size)
        self._done[self._current] = size

    def _progress(self, speed: float | None) -> Progress:
        done = sum(self._done)
        known = [size for size in self._sizes if size is not None]
        if len(known) < len(self._sizes):
            # Of a part of the sizes no honest percent can be made.
            return Progress(bytes=done, bytes_per_second=speed)
        whole = max(sum(known), done)
        return Progress(
            percent=100.0 * done / whole if whole else None,
            bytes=done,
            total_bytes=whole,
            bytes_per_second=speed,
            eta_seconds=(whole - done) / speed if speed else None,
        )
