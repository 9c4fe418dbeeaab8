"""What a file's own structure says, read from a few bytes.

Is all of it here, is its index in front?

A body cut short is often still "playable" to a prober, which trusts the header's duration. The
containers say how many bytes there should be; comparing costs microseconds and no decoding.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sluice_core.adapters.layout.ebml import read_ebml
from sluice_core.adapters.layout.iso import FIRST_BOXES, read_iso
from sluice_core.adapters.layout.streams import read_flv, read_mp3, read_mpegts, read_ogg, read_riff
from sluice_core.adapters.layout.values import Layout, OpenFile

__all__ = ["Layout", "read_layout"]


def read_layout(path: Path) -> Layout:
    """Look at the structure of a file; a format not known here gives an empty `Layout`.

    Raises:
        OSError: the file can't be read.

    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file = OpenFile(fd, os.fstat(fd).st_size)
        return _reader(file.read(0, 12))(file)
    finally:
        os.close(fd)


def _reader(head: bytes) -> Callable[[OpenFile], Layout]:
    if head[4:8] in FIRST_BOXES:
        return read_iso
    for magic, reader in (
        (b"\x1a\x45\xdf\xa3", read_ebml),
        (b"RIFF", read_riff),
        (b"OggS", read_ogg),
        (b"FLV", read_flv),
        (b"ID3", read_mp3),
        (b"\x47", read_mpegts),
        (b"\xff", read_mp3),
    ):
        if head.startswith(magic):
            return reader
    return lambda _file: Layout()
