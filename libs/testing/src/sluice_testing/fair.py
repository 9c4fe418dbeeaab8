"""Promises about time, measured so that a machine that others use too breaks none of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import psutil

#: (process, thread) -> nanoseconds that it ran, and that it was ready and waited for a core.
_Book = dict[tuple[int, str], tuple[int, int]]


class FairClock:
    """Seconds since it was made, without those for which processes had to wait for a core.

    Linux books for each thread how long it ran, and how long it could have run and had no core.
    Where one waited after the other, all of that is taken off. Where many waited at once, that
    would be too much: at least as large a part is left as they had of what they wanted.
    Elsewhere than on Linux nothing is taken off.

    Args:
        processes: that have to do with what is measured; the test's own is one where it works, and
            none where it only looks on. What has ended by the time of a look is not counted.

    """

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._pids = {process.pid for process in processes}
        self._before = self._read()
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        passed = time.monotonic() - self._begun
        ran = waited = 0
        for thread, (run, wait) in self._read().items():
            before = self._before.get(thread, (0, 0))
            ran += run - before[0]
            waited += wait - before[1]
        had = ran / (ran + waited) if ran else 1.0
        return max(passed - waited / 1e9, passed * had)

    def _read(self) -> _Book:
        found: _Book = {}
        for pid in self._pids:
            for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    ran, waited, _turns = map(int, file.read_text().split())
                except OSError:
                    # It has ended between the two questions.
                    continue
                found[pid, file.parent.name] = ran, waited
        return found
