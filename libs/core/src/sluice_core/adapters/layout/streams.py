"""Containers of one short rule each: RIFF, Ogg, FLV, MPEG-TS, MP3."""

from __future__ import annotations

import struct

from sluice_core.adapters.layout.values import Layout, OpenFile, told

#: Writers to a pipe put sizes near 2³¹ or 2³² where they can't know better.
_RIFF_UNKNOWN = 0x7FFF0000


def read_riff(file: OpenFile) -> Layout:
    size = struct.unpack_from("<4xI", file.read(0, 8).ljust(8, b"\0"))[0]
    if not size or size >= _RIFF_UNKNOWN:
        return Layout()
    # Some writers count a padding byte that is not there.
    return told(complete=size + 8 <= file.size + 1)


#: The largest Ogg page is 65,307 bytes (RFC 3533), so this holds a whole one.
_OGG_TAIL = 128 * 1024


def read_ogg(file: OpenFile) -> Layout:
    start = max(0, file.size - _OGG_TAIL)
    tail = file.read(start, _OGG_TAIL)
    page = tail.rfind(b"OggS\0")
    table = tail[page + 27 :][: tail[page + 26]] if page >= 0 and page + 27 <= len(tail) else b""
    if page < 0 or page + 27 + len(table) > len(tail):
        return Layout()
    return told(complete=bool(table) and page + 27 + len(table) + sum(table) <= len(tail))


def read_flv(file: OpenFile) -> Layout:
    """Each tag is followed by its own length, so the last four bytes must lead to a tag."""
    length = int.from_bytes(file.read(file.size - 4, 4), "big") if file.size > 24 else 0  # noqa: PLR2004  # header and one empty tag
    tag = file.read(file.size - 4 - length, 4) if 11 <= length <= file.size - 13 else b""  # noqa: PLR2004  # tag header; file header
    complete = len(tag) == 4 and int.from_bytes(tag[1:], "big") + 11 == length  # noqa: PLR2004
    return told(complete=complete)


_TS_PACKET = 188


def read_mpegts(file: OpenFile) -> Layout:
    """A partial packet in the last place, where all before it stand in step."""
    rest = file.size % _TS_PACKET
    in_step = file.read(_TS_PACKET, 1) == b"\x47" == file.read(file.size - rest, 1)
    return told(complete=not (rest and in_step))


#: Bytes that may lack although the last frame is there: writers count tags differently.
_MP3_SLACK = 4096


def read_mp3(file: OpenFile) -> Layout:
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
    return told(complete=start + length <= file.size + _MP3_SLACK)


def _id3_length(head: bytes) -> int:
    if not head.startswith(b"ID3") or len(head) < 10:  # noqa: PLR2004  # ID3v2's header
        return 0
    a, b, c, d = head[6:10]
    return 10 + (a << 21 | b << 14 | c << 7 | d)
