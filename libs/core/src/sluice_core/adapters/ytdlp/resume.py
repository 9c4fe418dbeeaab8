"""Going on with a partial file, when the bytes to come belong to those on disk."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from sluice_core.adapters.ytdlp.gaps import BYTES, GapNote, Hole
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Under this name the note says how long the file is.
PART_BYTES = "part_bytes"


@dataclass(frozen=True, slots=True)
class Version:
    """Which version of a file a response speaks of."""

    etag: str | None = None
    last_modified: str | None = None
    #: Bytes of the whole file.
    total: int | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Version:
        """Read a 200 or 206 response's headers (looked up without regard to case)."""
        content_range = headers.get("Content-Range")
        length = (
            content_range.rpartition("/")[2] if content_range else headers.get("Content-Length")
        )
        return cls(
            etag=headers.get("ETag"),
            last_modified=headers.get("Last-Modified"),
            total=int(length) if length and length.isdecimal() else None,
        )

    @property
    def is_known(self) -> bool:
        """Whether a later version can be told from this one at all."""
        return bool(self.etag or self.last_modified or self.total is not None)

    @property
    def if_range(self) -> str | None:
        """What to send as `If-Range`, which takes strong validators only."""
        if self.etag and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified

    def matches(self, other: Version) -> bool:
        """Whether nothing that both sides name differs, and at least one thing is named by both."""
        pairs = [
            (self.etag, other.etag),
            (self.last_modified, other.last_modified),
            (self.total, other.total),
        ]
        named = [(a, b) for a, b in pairs if a is not None and b is not None]
        return bool(named) and all(a == b for a, b in named)


@dataclass(frozen=True, slots=True)
class PartialState:
    """Beside a partial file: what it is a part of."""

    format_id: str | None = None
    version: Version = Version()
    #: Fragments in all; None for a file in one piece or when not known yet.
    fragments: int | None = None
    #: Another one whenever the file begins anew; bytes of two generations are never put together.
    generation: str | None = None

    @classmethod
    def parse(cls, text: str | bytes) -> PartialState:
        """Read what `dumps` wrote; nothing is known from anything else."""
        try:
            data = json.loads(text)
            return cls(**{**data, "version": Version(**data["version"])})
        except (ValueError, TypeError, KeyError):
            # The half of it that a kill left: then the partial file proves nothing.
            return cls()

    def dumps(self) -> str:
        return json.dumps(asdict(self))


class PartialFile:
    """A destination, its partial file and all that yt-dlp and we keep beside it."""

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.part = dest.with_name(f"{dest.name}.part")
        #: yt-dlp's note of the fragments that are in the partial file.
        self.note_file = dest.with_name(f"{dest.name}.ytdl")
        self._state = dest.with_name(f"{dest.name}.version")
        #: What `dest` is without; there before `dest` is.
        self.gaps_file = dest.with_name(f"{dest.name}.gaps")
        #: A file with gaps while another one is made of it and of what was missing.
        self.gapped = dest.with_name(f"{dest.name}.gapped")
        self._gapped_note = dest.with_name(f"{dest.name}.gapped.gaps")

    def size(self) -> int:
        """Bytes that are there, as far as they stand in one file."""
        for path in (self.dest, self.part):
            if path.exists():
                return path.stat().st_size
        return 0

    def part_size(self) -> int:
        """Bytes of the partial file."""
        return self.part.stat().st_size if self.part.exists() else 0

    def read_note(self) -> str | None:
        """yt-dlp's note; None for a file in one piece, or when nothing is here yet."""
        try:
            return self.note_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def load(self) -> PartialState:
        try:
            return PartialState.parse(self._state.read_bytes())
        except FileNotFoundError:
            return PartialState()

    def save(self, state: PartialState) -> None:
        write_whole(self._state, state.dumps().encode())

    def note(self, *, version: Version | None = None, fragments: int | None = None) -> None:
        """Add to what is known."""
        state = self.load()
        new = replace(
            state, version=version or state.version, fragments=fragments or state.fragments
        )
        if new != state:
            self.save(new)

    def gaps(self) -> GapNote | None:
        """What the whole file is kept without; None when nothing is missing, or it is not there."""
        return _read_gaps(self.gaps_file) if self.dest.exists() else None

    def gapped_note(self) -> GapNote | None:
        """What the file that is being filled is without; None when none is."""
        return _read_gaps(self._gapped_note) if self.gapped.exists() else None

    def write_gaps(self, note: GapNote) -> None:
        """To be called before the file gets its name: without the note it counts as whole."""
        write_whole(self.gaps_file, note.dumps().encode(), sync=True)

    def keep_short(self, code: str) -> None:
        """Keep a file in one piece, of which the site has no more than this, without its end."""
        state, size = self.load(), self.part_size()
        total = state.version.total or 0
        self.write_gaps(
            GapNote(
                format_id=state.format_id or "",
                code=code,
                unit=BYTES,
                total=total,
                holes=(Hole(size, total - 1, size),),
                state=state.dumps(),
            )
        )
        self.part.replace(self.dest)

    def reopen(self) -> None:
        """Make a file with gaps one that a transfer goes on with.

        A kill in between leaves it as it was, or as it is to be.
        """
        note = self.gaps()
        if note is None:
            return
        if note.unit == BYTES:
            self.save(PartialState.parse(note.state or ""))
            self.dest.replace(self.part)
            self.gaps_file.unlink(missing_ok=True)
            return
        for path in (self.part, self.note_file, self._state):
            path.unlink(missing_ok=True)
        write_whole(self._gapped_note, note.dumps().encode())
        self.dest.replace(self.gapped)

    def gapped_size(self) -> int:
        """Bytes of the file that is being filled."""
        return self.gapped.stat().st_size if self.gapped.exists() else 0

    def drop_gapped(self) -> None:
        """The other file is there, or nobody goes on with this one."""
        for path in (self.gapped, self._gapped_note):
            path.unlink(missing_ok=True)

    def begin(self, format_id: str) -> None:
        """Start from nothing, as another generation."""
        self.forget()
        self.save(PartialState(format_id=format_id, generation=new_generation()))

    def begin_again(self, *, version: Version | None = None) -> None:
        """Drop the bytes, and only then say that those to come are of another generation.

        Whoever reads along finds bytes of the generation that is noted, or none.

        Args:
            version: of the file to come, when known.
        """
        for path in (self.part, self.note_file):
            path.unlink(missing_ok=True)
        state = self.load()
        self.save(replace(state, version=version or state.version, generation=new_generation()))

    def forget(self) -> None:
        """Leave nothing."""
        for path in (self.dest, self.part, self.note_file, self._state, self.gaps_file):
            path.unlink(missing_ok=True)
        for path in self._fragments():
            path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Drop halves of fragments: what is asked for again must not be glued to them."""
        for path in self._fragments():
            if path.suffix == ".part":
                path.unlink(missing_ok=True)

    def drop_notes(self) -> None:
        """After the end."""
        for path in (self._state, self.note_file, *self._fragments()):
            path.unlink(missing_ok=True)

    def _fragments(self) -> list[Path]:
        prefix = f"{self.part.name}-Frag"
        return [path for path in self.dest.parent.iterdir() if path.name.startswith(prefix)]


def noted_length(note: str | None) -> int | None:
    """Bytes of the partial file that the note's fragments make; None when it does not say."""
    try:
        return int(json.loads(note or "")["downloader"]["extra_state"][PART_BYTES])
    except (ValueError, KeyError, TypeError):
        return None


def new_generation() -> str:
    return secrets.token_hex(8)


def write_whole(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a small file so that a kill leaves the old or the new one.

    Args:
        path: the file.
        data: its content.
        sync: it must be on the disk before what is written next.

    """
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)


def _read_gaps(path: Path) -> GapNote | None:
    """A note; None when there is none.

    Raises:
        SluiceError: it can't be read, so nobody knows what is missing.

    """
    try:
        return GapNote.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise SluiceError(
            "the note of what is missing can't be read", code="storage_error"
        ) from exc
