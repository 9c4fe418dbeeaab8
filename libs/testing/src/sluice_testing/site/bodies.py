"""Response bodies as spans of bytes and files, so that any size is served without eating memory."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Length of the padding pattern. A prime, so that a download which resumes at a wrong multiple of
#: any usual piece size (64 KiB, 16 MiB) gets wrong bytes rather than lucky ones.
PATTERN_BYTES = 8_388_593
_BOX_LIMIT = 1 << 32
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSpan:
    """`length` bytes of a file from `offset`."""

    path: Path
    offset: int
    length: int


Span = FileSpan | bytes


class Body(Protocol):
    """What a response carries."""

    @property
    def size(self) -> int | None:
        """Bytes in all; None when unknown or endless."""

    @property
    def etag(self) -> str:
        """Changes with the content; empty for bodies that are made anew each time."""

    def spans(self, start: int, length: int) -> Iterator[Span]:
        """The bytes `[start, start + length)`; bodies of unknown size ignore both."""


@dataclass(frozen=True, slots=True)
class BytesBody:
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def etag(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:16]

    def spans(self, start: int, length: int) -> Iterator[Span]:
        yield self.data[start : start + length]


@dataclass(frozen=True, slots=True)
class FileBody:
    """A file, or its first `limit` bytes."""

    path: Path
    limit: int | None = None

    @property
    def size(self) -> int:
        whole = self.path.stat().st_size
        return whole if self.limit is None else min(self.limit, whole)

    @property
    def etag(self) -> str:
        name = f"{self.path.parent.name}/{self.path.name}:{self.size}"
        return hashlib.sha256(name.encode()).hexdigest()[:16]

    def spans(self, start: int, length: int) -> Iterator[Span]:
        yield FileSpan(self.path, start, length)


@dataclass(frozen=True, slots=True)
class PaddedMp4:
    """A playable MP4 of any exact size: `base`, then one `free` box that players skip.

    The padding repeats the pattern file from a place that depends on seed and size, so that two
    such files differ in nearly every byte.
    """

    base: Path
    pattern: Path
    total: int
    seed: int = 0

    def __post_init__(self) -> None:
        smallest = self.base.stat().st_size + 16
        if self.total < smallest:
            raise ValueError(f"a padded sample has at least {smallest} bytes")

    @property
    def size(self) -> int:
        return self.total

    @property
    def etag(self) -> str:
        return hashlib.sha256(f"{self.seed}:{self.total}".encode()).hexdigest()[:16]

    def spans(self, start: int, length: int) -> Iterator[Span]:
        head = self.base.stat().st_size
        box = _free_box_header(self.total - head)
        end = start + length
        if start < head:
            yield FileSpan(self.base, start, min(end, head) - start)
        padding = head + len(box)
        if start < padding and end > head:
            yield box[max(0, start - head) : end - head]
        yield from self._padding(max(0, start - padding), end - padding)

    def _padding(self, position: int, end: int) -> Iterator[Span]:
        first = int(self.etag, 16) % PATTERN_BYTES
        while position < end:
            offset = (first + position) % PATTERN_BYTES
            count = min(end - position, PATTERN_BYTES - offset)
            yield FileSpan(self.pattern, offset, count)
            position += count


class _Unsized:
    """A body whose length nobody is told."""

    __slots__ = ()

    @property
    def size(self) -> None:
        return None

    @property
    def etag(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class EndlessBody(_Unsized):
    """`head`, then `block` for ever."""

    head: bytes
    block: bytes

    def spans(self, start: int, length: int) -> Iterator[Span]:
        del start, length
        yield self.head
        while True:
            yield self.block


@dataclass(frozen=True, slots=True)
class GzipBomb(_Unsized):
    """A gzip stream of about a thousandth of what it unpacks to."""

    head: bytes
    unpacked: int

    def spans(self, start: int, length: int) -> Iterator[Span]:
        del start, length
        packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        yield packer.compress(self.head)
        block = b" " * _READ
        for _ in range(max(0, self.unpacked - len(self.head)) // _READ):
            yield packer.compress(block)
        yield packer.flush()


def pattern_bytes() -> bytes:
    """The padding pattern: pseudo-random, the same everywhere."""
    return hashlib.shake_128(b"sluice sample padding").digest(PATTERN_BYTES)


def sha256(body: Body) -> str:
    """Digest of a whole body, in constant memory.

    Raises:
        ValueError: the body has no size.
    """
    if body.size is None:
        raise ValueError("a body without end has no digest")
    if isinstance(body, PaddedMp4):
        return _padded_sha256(body)
    return _digest(body, body.size)


@lru_cache(maxsize=256)
def _padded_sha256(body: PaddedMp4) -> str:
    return _digest(body, body.total)


def _digest(body: Body, size: int) -> str:
    digest = hashlib.sha256()
    for span in body.spans(0, size):
        if isinstance(span, bytes):
            digest.update(span)
        else:
            _digest_file(digest, span)
    return digest.hexdigest()


def _digest_file(digest: hashlib._Hash, span: FileSpan) -> None:
    with span.path.open("rb") as file:
        file.seek(span.offset)
        left = span.length
        while left:
            data = file.read(min(left, _READ))
            if not data:
                return
            digest.update(data)
            left -= len(data)


def _free_box_header(size: int) -> bytes:
    """The head of an ISO base media `free` box of `size` bytes, in 64-bit form when needed."""
    if size < _BOX_LIMIT:
        return size.to_bytes(4, "big") + b"free"
    return (1).to_bytes(4, "big") + b"free" + size.to_bytes(8, "big")
