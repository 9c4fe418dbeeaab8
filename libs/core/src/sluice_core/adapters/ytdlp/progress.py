"""A transfer's progress, as lines and as the place where its limits are held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice_core.adapters.ytdlp.sniff import SNIFF, is_page
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.told import size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice_core.adapters.ytdlp.resume import PartialFile

#: Seconds between two lines.
INTERVAL = 0.25
#: Bounds of one block in bytes.
_LEAST_BLOCK = 1024
_LARGEST_BLOCK = 4 * 1024 * 1024


class FragmentsChangedError(Exception):
    """The manifest has another number of fragments than the one that the partial file came from."""


def block_size(elapsed: float, received: int) -> int:
    """How much to read next, in yt-dlp's signature: half of what comes between two lines.

    yt-dlp's own answer is what comes in a second, and nothing is told before a block is whole. One
    of a full interval would often end just before the next line is due, and be told a block later.

    Args:
        elapsed: seconds that the last block took.
        received: its bytes.
    """
    fitting = received * INTERVAL / 2 / max(elapsed, 1e-6)
    steady = min(max(fitting, received / 2), received * 2)
    return int(min(max(steady, _LEAST_BLOCK), _LARGEST_BLOCK))


class Progress:
    """yt-dlp's progress hook of one transfer.

    Args:
        emit: takes one event.
        file: what is on disk.
        max_bytes: the largest file allowed, None without a limit.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        emit: Callable[[dict[str, Any]], None],
        file: PartialFile,
        max_bytes: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._emit = emit
        self._file = file
        self._max_bytes = max_bytes
        self._clock = clock
        self._fragments = file.load().fragments
        self._next = 0.0
        self._sniffed = False

    def __call__(self, status: dict[str, Any]) -> None:
        """Take one call of the library's.

        Raises:
            SluiceError: `too_large` or `bad_media`, which ends the transfer.
            FragmentsChangedError: what is on disk can't be continued.
        """
        self._check_size(status)
        self._check_fragments(status.get("fragment_count"))
        if not self._sniffed:
            self._sniff()
        now = self._clock()
        if now >= self._next and status.get("status") == "downloading":
            self._next = now + INTERVAL
            self._emit(_event(status))

    def _check_size(self, status: dict[str, Any]) -> None:
        if self._max_bytes is None:
            return
        known = max(status.get("total_bytes") or 0, status.get("downloaded_bytes") or 0)
        if known > self._max_bytes:
            raise SluiceError(
                f"the file has more than the allowed {self._max_bytes} bytes", code="too_large"
            )

    def _check_fragments(self, count: int | None) -> None:
        if not count or count == self._fragments:
            return
        if self._fragments is not None:
            raise FragmentsChangedError
        self._fragments = count
        self._file.note(fragments=count)

    def _sniff(self) -> None:
        if self._file.part.exists() and self._file.part.stat().st_size >= SNIFF:
            self._sniffed = True
            refuse_page(self._file)


def refuse_page(file: PartialFile) -> None:
    """Refuse a web page in place of media.

    Raises:
        SluiceError: `bad_media`.
    """
    path = file.dest if file.dest.exists() else file.part
    with path.open("rb") as start:
        if is_page(start.read(SNIFF)):
            raise SluiceError("the site sent a web page in place of media", code="bad_media")


def _event(status: dict[str, Any]) -> dict[str, Any]:
    total = size_of(status.get("total_bytes"))
    estimate = size_of(status.get("total_bytes_estimate"))
    return {
        "event": "progress",
        "bytes": status.get("downloaded_bytes") or 0,
        "total": total or estimate,
        "estimated": not total and bool(estimate),
        "speed": status.get("speed"),
        "eta": status.get("eta"),
        "fragment": status.get("fragment_index"),
        "fragments": status.get("fragment_count"),
    }
