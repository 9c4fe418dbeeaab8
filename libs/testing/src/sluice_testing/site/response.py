"""From a reply and its faults to bytes on the wire: ranges, headers, framing, cuts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from .bodies import FileSpan
from .reply import phrase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .behaviour import Behaviour
    from .bodies import Span
    from .reply import Reply
    from .wire import Wire

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True, slots=True)
class Part:
    """Which bytes of a body are sent, under which status. `length` is None without an end."""

    status: int
    start: int
    length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What of the request matters for the body."""

    range: str | None = None
    if_range: str | None = None
    #: HTTP/1.0 knows no chunks.
    old: bool = False


def choose_part(reply: Reply, behaviour: Behaviour, asked: Conditions) -> Part:
    """Apply a Range header, if it is to be honoured. Several ranges at once get the whole."""
    size = reply.body.size
    whole = Part(reply.status, 0, size)
    if size is None or not (reply.ranges and behaviour.ranges and asked.range):
        return whole
    if asked.if_range is not None and asked.if_range != f'"{reply.body.etag}"':
        return whole
    match = _RANGE.fullmatch(asked.range)
    if match is None or match.groups() == ("", ""):
        return whole
    first, last = match.groups()
    if first:
        start, end = int(first), min(size, int(last) + 1) if last else size
    else:
        start, end = max(0, size - int(last)), size
    if start >= end:
        return Part(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, 0)
    return Part(HTTPStatus.PARTIAL_CONTENT, start, end - start)


def choose_framing(part: Part, behaviour: Behaviour, asked: Conditions) -> str:
    """How the end of the body is told: "exact", "chunked", "close", "wrong" or "huge"."""
    kind = behaviour.length
    if part.length is None and kind == "exact":
        kind = "chunked"
    return "close" if kind == "chunked" and asked.old else kind


def head_bytes(
    reply: Reply, part: Part, behaviour: Behaviour, *, framing: str, close: bool
) -> bytes:
    """Status line and headers."""
    headers = [("Server", "sample"), ("Content-Type", behaviour.content_type or reply.content_type)]
    if framing == "exact":
        headers.append(("Content-Length", str(part.length)))
    elif framing == "wrong":
        headers.append(("Content-Length", "many"))
    elif framing == "huge":
        headers.append(("Content-Length", str(10**400)))
    elif framing == "chunked":
        headers.append(("Transfer-Encoding", "chunked"))
    if reply.ranges:
        headers += _file_headers(reply, part, behaviour)
    headers += [*reply.headers, ("Connection", "close" if close else "keep-alive")]
    lines = [f"HTTP/1.1 {part.status} {phrase(part.status)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _file_headers(reply: Reply, part: Part, behaviour: Behaviour) -> Iterator[tuple[str, str]]:
    if behaviour.ranges:
        yield "Accept-Ranges", "bytes"
    if reply.body.etag:
        yield "ETag", f'"{reply.body.etag}"'
    if part.status == HTTPStatus.PARTIAL_CONTENT and part.length is not None:
        yield (
            "Content-Range",
            f"bytes {part.start}-{part.start + part.length - 1}/{reply.body.size}",
        )
    elif part.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        yield "Content-Range", f"bytes */{reply.body.size}"


def send_body(wire: Wire, reply: Reply, part: Part, *, chunked: bool, cut: int | None) -> bool:
    """Send the part, or its first `cut` bytes; True when all of it went."""
    whole = cut is None or (part.length is not None and part.length <= cut)
    spans = reply.body.spans(part.start, part.length or 0)
    for span in spans if whole or cut is None else first_bytes(spans, cut):
        if chunked and (length := _length(span)):
            wire.framing(f"{length:x}\r\n".encode())
            wire.span(span)
            wire.framing(b"\r\n")
        else:
            wire.span(span)
    if chunked and whole:
        wire.framing(b"0\r\n\r\n")
    return whole


def first_bytes(spans: Iterable[Span], count: int) -> Iterator[Span]:
    """The spans up to `count` bytes in all."""
    for span in spans:
        if count <= 0:
            return
        if (length := _length(span)) <= count:
            yield span
        elif isinstance(span, FileSpan):
            yield replace(span, length=count)
        else:
            yield span[:count]
        count -= length


def _length(span: Span) -> int:
    return span.length if isinstance(span, FileSpan) else len(span)
