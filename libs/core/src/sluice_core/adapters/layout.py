"""What a file's own structure says, read from a few bytes.

Is all of it here, is its index in front?

A body cut short is often still "playable" to a prober, which trusts the header's duration. The
containers say how many bytes there should be; comparing costs microseconds and no decoding.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
class _File:
    fd: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.fd, length, offset) if offset < self.size else b""


def read_layout(path: Path) -> Layout:
    """Look at the structure of a file; a format not known here gives an empty `Layout`.

    Raises:
        OSError: the file can't be read.

    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file = _File(fd, os.fstat(fd).st_size)
        return _reader(file.read(0, 12))(file)
    finally:
        os.close(fd)


def _reader(head: bytes) -> Callable[[_File], Layout]:
    if head[4:8] in _ISO_FIRST:
        return _iso
    for magic, reader in (
        (b"\x1a\x45\xdf\xa3", _ebml),
        (b"RIFF", _riff),
        (b"OggS", _ogg),
        (b"FLV", _flv),
        (b"ID3", _mp3),
        (b"\x47", _mpegts),
        (b"\xff", _mp3),
    ):
        if head.startswith(magic):
            return reader
    return lambda _file: Layout()


# -- ISO base media (MP4, M4A, MOV) ---------------------------------------------------------------

_ISO_FIRST = (b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")

#: Boxes whose length is believed; junk behind the media has a length too, of nothing.
_ISO_TRUSTED = frozenset(
    (*_ISO_FIRST, b"moof", b"sidx", b"mfra", b"meta", b"uuid", b"ssix", b"emsg", b"prft")
)

#: More than a day of one-second fragments; a walk must end.
_MAX_BOXES = 400_000

_BOX_HEADER = 8
_LONG_BOX_HEADER = 16


def _iso(file: _File) -> Layout:
    seen: dict[bytes, int] = {}
    end = 0
    for kind, offset, size in _boxes(file):
        seen.setdefault(kind, offset)
        if kind in _ISO_TRUSTED:
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


def _boxes(file: _File) -> Iterator[tuple[bytes, int, int]]:
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


def _sidx_end(file: _File, offset: int, size: int) -> int:
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


# -- EBML (WebM, Matroska) ------------------------------------------------------------------------

_SEGMENT = b"\x18\x53\x80\x67"
_DOCTYPE = b"\x42\x82"


def _ebml(file: _File) -> Layout:
    head = file.read(0, 4096)
    length, width = _vint(head, 4)
    body = 4 + width
    if length is None:
        return Layout()
    doctype = _doctype(head[body : body + length])
    segment = body + length
    if head[segment : segment + 4] != _SEGMENT:
        return Layout(doctype=doctype)
    size, width = _vint(head, segment + 4)
    # A live muxer leaves the size unknown; then the end can't be told from the structure.
    complete = size is None or segment + 4 + width + size <= file.size
    return Layout(complete=complete, tells_length=size is not None, doctype=doctype)


def _doctype(body: bytes) -> str:
    at = body.find(_DOCTYPE)
    if at < 0:
        return ""
    length, width = _vint(body, at + 2)
    start = at + 2 + width
    return body[start : start + (length or 0)].rstrip(b"\0").decode("ascii", "replace")


def _vint(data: bytes, at: int) -> tuple[int | None, int]:
    """An EBML length at this place and its width in bytes; None is "unknown" or unreadable."""
    if at >= len(data) or not data[at]:
        return None, 1
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (None if value == (1 << 7 * width) - 1 else value), width


# -- the others -----------------------------------------------------------------------------------


def _told(*, complete: bool) -> Layout:
    return Layout(complete=complete, tells_length=True)


#: Writers to a pipe put sizes near 2³¹ or 2³² where they can't know better.
_RIFF_UNKNOWN = 0x7FFF0000


def _riff(file: _File) -> Layout:
    size = struct.unpack_from("<4xI", file.read(0, 8).ljust(8, b"\0"))[0]
    if not size or size >= _RIFF_UNKNOWN:
        return Layout()
    # Some writers count a padding byte that is not there.
    return _told(complete=size + 8 <= file.size + 1)


#: The largest Ogg page is 65,307 bytes (RFC 3533), so this holds a whole one.
_OGG_TAIL = 128 * 1024


def _ogg(file: _File) -> Layout:
    start = max(0, file.size - _OGG_TAIL)
    tail = file.read(start, _OGG_TAIL)
    page = tail.rfind(b"OggS\0")
    table = tail[page + 27 :][: tail[page + 26]] if page >= 0 and page + 27 <= len(tail) else b""
    if page < 0 or page + 27 + len(table) > len(tail):
        return Layout()
    return _told(complete=bool(table) and page + 27 + len(table) + sum(table) <= len(tail))


def _flv(file: _File) -> Layout:
    """Each tag is followed by its own length, so the last four bytes must lead to a tag."""
    length = int.from_bytes(file.read(file.size - 4, 4), "big") if file.size > 24 else 0  # noqa: PLR2004  # header and one empty tag
    tag = file.read(file.size - 4 - length, 4) if 11 <= length <= file.size - 13 else b""  # noqa: PLR2004  # tag header; file header
    complete = len(tag) == 4 and int.from_bytes(tag[1:], "big") + 11 == length  # noqa: PLR2004
    return _told(complete=complete)


_TS_PACKET = 188


def _mpegts(file: _File) -> Layout:
    """A partial packet in the last place, where all before it stand in step."""
    rest = file.size % _TS_PACKET
    in_step = file.read(_TS_PACKET, 1) == b"\x47" == file.read(file.size - rest, 1)
    return _told(complete=not (rest and in_step))


#: Bytes that may lack although the last frame is there: writers count tags differently.
_MP3_SLACK = 4096


def _mp3(file: _File) -> Layout:
    """The Xing or Info frame tells how many bytes of frames there are."""
    start = _id3_length(file.read(0, 10))
    frame = file.read(start, 256)
    at = max(frame.find(b"Xing"), frame.find(b"Info"))
    if at < 0 or len(frame) < at + 16:
        return Layout()
    flags, first, second = struct.unpack_from(">III", frame, at + 4)
    if not flags & 2:
        return Layout()
    length = second if flags & 1 else first
    return _told(complete=start + length <= file.size + _MP3_SLACK)


def _id3_length(head: bytes) -> int:
    if not head.startswith(b"ID3") or len(head) < 10:  # noqa: PLR2004  # ID3v2's header
        return 0
    a, b, c, d = head[6:10]
    return 10 + (a << 21 | b << 14 | c << 7 | d)
