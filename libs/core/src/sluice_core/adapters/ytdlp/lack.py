"""Which fragments a file may go without: what is left out, where it belongs, how it comes later.

A fragment is missing for good when the site says so (404, 410) at every try of it; whatever else
goes wrong ends the transfer, as if no gap were allowed. The first fragment, and what prepares the
decoder, must be there, and half of all.

A file with gaps is filled by making another one: the bytes between the gaps come from the old one,
only what was missing is asked for.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.gaps import FRAGMENTS, GapNote, Hole, Timeline
from sluice_core.adapters.ytdlp.options import RETRIES
from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Ctx = dict[str, Any]

#: In the library's note: [first, last, byte where they belong] of what was left out.
_MISSING = "missing"
#: There: why.
_CODE = "missing_code"
#: There: bytes that the old file does not have.
_FILLED = "filled"

_NOT_FOUND = 404
_BLOCK = 1024 * 1024


class Lack:
    """What one transfer leaves out.

    Args:
        format_id: what is fetched.
        fresh: the links are just from the page: one that is refused as gone stays so.
        filling: the file that is filled, None when all is fetched.
        told: called when another fragment was left out, with how many in all.

    """

    def __init__(
        self,
        *,
        format_id: str,
        fresh: bool,
        filling: PartialFile | None,
        told: Callable[[int], None],
    ) -> None:
        self._format_id = format_id
        self._fresh = fresh
        self._told = told
        self._old = Old(filling) if filling is not None else None
        self._timeline = Timeline()
        self._total = 0
        self._tries: Counter[int] = Counter()
        #: Number -> why; threads of the library write here.
        self._lost: dict[int, str] = {}
        self._lock = threading.Lock()

    def open(self, ctx: Ctx, timeline: Timeline) -> None:
        """The file is open, at the place from which it goes on."""
        self._timeline = timeline
        self._total = max(1, ctx["total_frags"] - (timeline.head if timeline.in_count else 0))
        for first, last, _at in _missing(ctx):
            code: str = _state(ctx)[_CODE]
            self._lost.update(dict.fromkeys(range(first, last + 1), code))
        if self._old is not None:
            self._old.open(ctx["complete_frags_downloaded_bytes"] - _state(ctx).get(_FILLED, 0))

    @contextmanager
    def told(self, ctx: Ctx) -> Iterator[None]:
        """What is in the old file is told as fetched."""
        if self._old is None:
            yield
            return
        index = ctx["fragment_index"]
        ctx["fragment_index"] = max(index, ctx["total_frags"] - self._old.missing)
        ctx["complete_frags_downloaded_bytes"] = self._old.size + _state(ctx).get(_FILLED, 0)
        yield
        ctx["fragment_index"] = index

    def wants(self, fragment: Mapping[str, Any]) -> bool:
        """Whether to ask for it."""
        return self._old is None or fragment["frag_index"] in self._old.places

    def must_come(self, index: int) -> bool:
        """Whether the library may not leave out the fragment with this index, counted from 0."""
        return index + 1 not in self._lost

    def accepts(self, number: int, error: Exception) -> bool:
        """Whether the fragment is missing for good, after one more try failed.

        Raises:
            SluiceError: `incomplete`, too much is missing.

        """
        code = self._code(error)
        if code is None or number <= self._timeline.head + 1:
            return False
        with self._lock:
            self._tries[number] += 1
            if code == "not_found" and self._tries[number] <= RETRIES:
                return False
            self._lost[number] = code
            self._check_share()
        return True

    def _code(self, error: Exception) -> str | None:
        if isinstance(error, SluiceError):
            return "gone" if error.code == "gone" and self._fresh else None
        missing = isinstance(error, HTTPError) and error.status == _NOT_FOUND
        return "not_found" if missing else None

    def _check_share(self) -> None:
        if 2 * len(self._lost) > self._total:
            raise SluiceError(
                f"more than half of the {self._total} fragments are missing", code="incomplete"
            )

    def before(self, ctx: Ctx, number: int, length: int) -> None:
        """A fragment is about to be added: what stands in front of it comes from the old file."""
        if self._old is not None:
            self._old.copy(ctx["dest_stream"], self._old.places[number])
            _state(ctx)[_FILLED] = _state(ctx).get(_FILLED, 0) + length

    def left_out(self, ctx: Ctx, number: int) -> None:
        """Note a fragment that does not come, and where it belongs."""
        out = ctx["dest_stream"]
        if self._old is not None:
            self._old.copy(out, self._old.places[number])
        out.flush()
        _state(ctx).setdefault(_CODE, self._lost[number])
        missing = _state(ctx).setdefault(_MISSING, [])
        if missing and missing[-1][1:] == [number - 1, out.tell()]:
            missing[-1][1] = number
        else:
            missing.append([number, number, out.tell()])
        self._told(len(self._lost))

    def close(self, ctx: Ctx) -> None:
        """All has come that comes: note what has not, before the file gets its name.

        Raises:
            SluiceError: `incomplete`, too much is missing.

        """
        out = ctx["dest_stream"]
        if self._old is not None:
            self._old.copy(out, None)
            out.flush()
        if not _missing(ctx):
            return
        self._check_share()
        holes = [
            Hole(first, last, at, *(self._timeline.span(first, last) or (None, None)))
            for first, last, at in _missing(ctx)
        ]
        PartialFile(Path(ctx["filename"])).write_gaps(
            GapNote(
                format_id=self._format_id,
                code=_state(ctx)[_CODE],
                unit=FRAGMENTS,
                total=self._total,
                holes=tuple(holes),
                head=self._timeline.head,
                count=ctx["total_frags"],
            )
        )


class Old:
    """A file with gaps that another one is made of.

    Args:
        file: as `PartialFile.reopen` left it.

    """

    def __init__(self, file: PartialFile) -> None:
        note = file.gapped_note()
        holes = note.holes if note else ()
        self._path = file.gapped
        self._at = 0
        self.size = file.gapped.stat().st_size
        #: Number of each fragment that is missing -> where it belongs.
        self.places = {n: hole.at for hole in holes for n in range(hole.first, hole.last + 1)}
        self.missing = len(self.places)

    def open(self, taken: int) -> None:
        """So many of its bytes are in the new file already."""
        self._at = taken

    def copy(self, out: Any, until: int | None) -> None:
        """Add its bytes up to there; None: all that is left."""
        left = (self.size if until is None else until) - self._at
        if left <= 0:
            return
        with self._path.open("rb") as old:
            old.seek(self._at)
            while left > 0 and (block := old.read(min(_BLOCK, left))):
                out.write(block)
                self._at += len(block)
                left -= len(block)


def _state(ctx: Ctx) -> Ctx:
    state: Ctx = ctx.setdefault("extra_state", {})
    return state


def _missing(ctx: Ctx) -> list[list[int]]:
    found: list[list[int]] = _state(ctx).get(_MISSING, [])
    return found
