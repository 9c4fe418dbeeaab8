"""Moments of a growing file, in which its bytes and its notes belong together.

The file is written by a child at the same time. Three rules make a look at it consistent:

- A file of one generation only grows; before it begins anew its bytes go, and then the noted
  generation changes. So what was read while the generation did not change is of that generation.
- yt-dlp writes a fragment first and its number after that, so bytes beyond the note may be written
  again: a fragmented file is cut exactly where a note of it ends.
- A file in one piece may be cut anywhere: going on asks for the bytes from there.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from sluice_core.adapters.ytdlp.resume import PartialFile, PartialState, noted_length

_BLOCK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where the file may be cut."""

    generation: str
    #: Bytes before it.
    end: int
    state: PartialState
    #: None: the file may be cut anywhere before this end, too.
    note: str | None


def look(file: PartialFile) -> Cut | None:
    """The last place where the file can be cut now; None when it can't, or is of no use."""
    state = file.load()
    note = file.read_note()
    if state.generation is None:
        return None
    if note is None and (state.fragments is not None or not state.version.is_known):
        # Fragments that are not noted, or bytes that nobody could go on with.
        return None
    end = file.part_size() if note is None else noted_length(note)
    if not end or file.load().generation != state.generation:
        return None
    return Cut(state.generation, end, state, note)


def copy_range(file: PartialFile, cut: Cut, start: int, end: int, target: Path) -> int | None:
    """Copy bytes of the cut's generation to a new file.

    Returns:
        their CRC-32, or None when the file has moved on to another generation.

    Raises:
        OSError: `target` can't be written.

    """
    try:
        source = file.part.open("rb")
    except FileNotFoundError:
        return None
    checksum, left = 0, end - start
    with source, target.open("wb") as out:
        source.seek(start)
        while left:
            block = source.read(min(_BLOCK, left))
            if not block:
                return None
            checksum = zlib.crc32(block, checksum)
            out.write(block)
            left -= len(block)
    same = file.load().generation == cut.generation
    return checksum if same else None
