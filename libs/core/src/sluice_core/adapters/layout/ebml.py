"""EBML: WebM, Matroska."""

from __future__ import annotations

from sluice_core.adapters.layout.values import Layout, OpenFile

_SEGMENT = b"\x18\x53\x80\x67"
_DOCTYPE = b"\x42\x82"


def read_ebml(file: OpenFile) -> Layout:
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
