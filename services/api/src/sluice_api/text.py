"""What may stand in submitted text: anything that every store can keep as it came."""

from __future__ import annotations

from typing import Any

#: A submitter's own words are for the submitter; a novel belongs elsewhere.
MAX_METADATA_CHARS = 16_384
MAX_DEPTH = 16
#: PostgreSQL's JSON keeps any number, but readers of the answer keep 64 bits at most.
MAX_NUMBER = 2**63


def checked_text(text: str) -> str:
    """The text, unless it holds what UTF-8 or PostgreSQL can't.

    Raises:
        ValueError: it does.

    """
    if "\0" in text:
        raise ValueError("the character U+0000 is not allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is not text") from None
    return text


def checked_json(value: Any) -> Any:
    """A decoded JSON value of modest size and depth.

    Raises:
        ValueError: it is too large, too deep, or holds something that can't be stored.

    """
    if _size(value, MAX_DEPTH) > MAX_METADATA_CHARS:
        raise ValueError(f"more than {MAX_METADATA_CHARS} characters")
    return value


def _size(value: Any, depth: int) -> int:
    if depth < 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return len(checked_text(value)) + 2
    if isinstance(value, dict):
        return 2 + sum(_size(k, depth) + _size(v, depth - 1) + 2 for k, v in value.items())
    if isinstance(value, list):
        return 2 + sum(_size(item, depth - 1) + 1 for item in value)
    if isinstance(value, int | float) and not -MAX_NUMBER <= value < MAX_NUMBER:
        # Also infinities and "not a number", which are no JSON.
        raise ValueError("a number is out of range")
    return 8
