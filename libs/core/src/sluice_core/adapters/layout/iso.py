"""ISO base media: MP4, M4A, MOV."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sluice_core.adapters.layout.values import Layout, OpenFile

FIRST_BOXES = (b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")

#: Boxes whose length is believed; junk behind the media has a length too, of nothing.
_TRUSTED = frozenset(
    (*FIRST_BOXES, b"moof", b"sidx", b"mfra", b"meta", b"uuid", b"ssix", b"emsg", b"prft")
)

#: More than a day of one-second fragments; a walk must end.
_MAX_BOXES = 400_000

_BOX_HEADER = 8
_LONG_BOX_HEADER = 16


def read_iso(file: OpenFile) -> Layout:
    seen: dict[bytes, int] = {}
    end = 0
    for kind, offset, size in _boxes(file):
        seen.setdefault(kind, offset)
        if kind in _TRUSTED:
            end = max(end, offset + size)
        if kind == b"sidx":
            end = max(end, _sidx_end(file, offset, size))
    fragmented = b"moof" in seen
    has_index = b"moov" in seen
    return Layout(
        complete=has_index and (b"mdat" in seen) and end <= file.size,
        tells_length=True,
        fast_start=has_index and seen[b"moov"] < seen.get(b"mdat", file.size),
        fragmented=fragmented,
    )


def _boxes(file: OpenFile) -> Iterator[tuple[bytes, int, int]]:
    """Top-level boxes as (type, offset, size), also one that reaches beyond the end."""
    offset = 0
    for _ in range(_MAX_BOXES):
        header = file.read(offset, _LONG_BOX_HEADER)
        if len(header) < _BOX_HEADER:
            return
        size, kind = struct.unpack_from(">I4s", header)
        if size == 0:
            size = file.size - offset
        elif size == 1 and len(header) == _LONG_BOX_HEADER:
            size = struct.unpack_from(">Q", header, 8)[0]
        if size < _BOX_HEADER:
            return
        yield kind, offset, size
        offset += size


def _sidx_end(file: OpenFile, offset: int, size: int) -> int:
    """Where the last fragment ends that this segment index tells of (ISO 14496-12, 8.16.3)."""
    body = file.read(offset + _BOX_HEADER, min(size, 1 << 20) - _BOX_HEADER)
    version = body[0] if body else 0
    times = ">QQ" if version else ">II"
    start = 12 + struct.calcsize(times)
    if len(body) < start + 4:
        return 0
    first_offset = struct.unpack_from(times, body, 12)[1]
    count = struct.unpack_from(">xxH", body, start)[0]
    references = body[start + 4 : start + 4 + 12 * count]
    # The top bit of each size tells whether media or another index is meant.
    sizes = (ref[0] & 0x7FFFFFFF for ref in struct.iter_unpack(">I8x", _whole(references, 12)))
    return int(offset + size + first_offset + sum(sizes))


def _whole(data: bytes, unit: int) -> bytes:
    return data[: len(data) // unit * unit]
