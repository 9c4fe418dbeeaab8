"""Going on with a partial file, when the bytes to come belong to those on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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


class PartialFile:
    """A destination, its partial file and all that yt-dlp and we keep beside it."""

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.part = dest.with_name(f"{dest.name}.part")
        self._state = dest.with_name(f"{dest.name}.version")
        self._ytdl = dest.with_name(f"{dest.name}.ytdl")

    def size(self) -> int:
        """Bytes that are there, as far as they stand in one file."""
        for path in (self.dest, self.part):
            if path.exists():
                return path.stat().st_size
        return 0

    def load(self) -> PartialState:
        try:
            data = json.loads(self._state.read_bytes())
            return PartialState(**{**data, "version": Version(**data["version"])})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            # Nothing, or the half of it that a kill left: then the partial file proves nothing.
            return PartialState()

    def save(self, state: PartialState) -> None:
        write_whole(self._state, json.dumps(asdict(state)).encode())

    def note(self, *, version: Version | None = None, fragments: int | None = None) -> None:
        """Add to what is known."""
        state = self.load()
        new = replace(
            state, version=version or state.version, fragments=fragments or state.fragments
        )
        if new != state:
            self.save(new)

    def forget(self) -> None:
        """Start from nothing."""
        for path in (self.dest, self.part, self._ytdl, self._state):
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
        for path in (self._state, self._ytdl, *self._fragments()):
            path.unlink(missing_ok=True)

    def _fragments(self) -> list[Path]:
        prefix = f"{self.part.name}-Frag"
        return [path for path in self.dest.parent.iterdir() if path.name.startswith(prefix)]


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file so that a kill leaves the old or the new one."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    new.replace(path)
