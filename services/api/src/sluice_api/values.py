"""JSON text before it is decoded: decoding is one step, during which nobody else has the loop."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

from sluice_api.turns import Turns

#: Values of one JSON text, and names with them: 10,000 links with all of their fields have fewer.
#: Decoding as many takes up to a tenth of a second.
MAX_VALUES = 300_000
#: Bytes or characters that are looked at in one step.
PIECE = 64 * 1024
#: Digits of a whole number that are worth reading; the largest float has 309. Beyond, the time that
#: reading takes grows with their square.
_MAX_DIGITS = 400
#: Beyond, the language itself refuses to read it.
_NO_NUMBER = 4300

_OPEN = "[{,:"


def text_of(data: bytes) -> str:
    """As `json.loads` would read it, piece by piece: half a surrogate pair costs a lot in one.

    Raises:
        UnicodeDecodeError: it is no text.

    """
    encoding = json.detect_encoding(data)
    if len(data) <= PIECE:
        return data.decode(encoding, "surrogatepass")
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    turns = Turns()
    pieces = []
    for at in range(0, len(data), PIECE):
        pieces.append(decoder.decode(data[at : at + PIECE]))
        turns.give()
    return "".join((*pieces, decoder.decode(b"", final=True)))


def are_too_many(text: str) -> bool:
    """Whether more than `MAX_VALUES` brackets, commas and colons stand outside of strings."""
    if len(text) <= MAX_VALUES:
        return False
    turns = Turns()
    count = 0
    is_within = False
    for piece in _pieces(text):
        # Pairs from the left, so that what is left before a quote escapes it.
        parts = piece.replace("\\\\", "").replace('\\"', "").split('"')
        outside = "".join(parts[is_within::2])
        count += sum(outside.count(char) for char in _OPEN)
        if count > MAX_VALUES:
            return True
        is_within ^= len(parts) % 2 == 0
        turns.give()
    return False


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces, none of which ends between a backslash and what it escapes."""
    at = 0
    while at < len(text):
        piece = text[at : at + PIECE]
        if (len(piece) - len(piece.rstrip("\\"))) % 2 and at + len(piece) < len(text):
            piece = piece[:-1]
        yield piece
        at += len(piece)


def whole_number(text: str) -> int | float:
    """A whole number of JSON; infinite where it has more digits than anything here may have.

    Raises:
        ValueError: it has so many that it is none.

    """
    if len(text) <= _MAX_DIGITS:
        return int(text)
    if len(text.removeprefix("-")) > _NO_NUMBER:
        raise ValueError("a number of too many digits")
    return float(text)
