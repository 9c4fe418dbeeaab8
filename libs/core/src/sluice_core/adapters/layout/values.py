"""What a structure says, and the file that is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """What the structure says.

    Attributes:
        complete: False only when bytes are surely missing; a container that does not tell its
            length counts as complete.
        tells_length: whether `complete` was read from the structure at all.
        fast_start: ISO files only: the index stands before the media.
        fragmented: ISO files only: media and index alternate.
        doctype: EBML files only: `webm` or `matroska`.

    """

    complete: bool = True
    tells_length: bool = False
    fast_start: bool = False
    fragmented: bool = False
    doctype: str = ""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file as the readers of its structure see it."""

    fd: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.fd, length, offset) if offset < self.size else b""


def told(*, complete: bool) -> Layout:
    """The layout of a container that tells its length and nothing else."""
    return Layout(complete=complete, tells_length=True)
