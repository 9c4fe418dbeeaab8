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
    _take(value, MAX_DEPTH, MAX_METADATA_CHARS)
    return value


def _take(value: Any, depth: int, left: int) -> int:
    """How many characters are left behind a value; refused at the first that does not fit."""
    if depth < 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        left -= len(checked_text(value)) + 2
    elif isinstance(value, dict):
        left -= 2
        for name, item in value.items():
            left = _take(item, depth - 1, _take(name, depth, left)) - 2
    elif isinstance(value, list):
        left -= 2
        for item in value:
            left = _take(item, depth - 1, left) - 1
    elif isinstance(value, int | float) and not -MAX_NUMBER <= value < MAX_NUMBER:
        # Also infinities and "not a number", which are no JSON.
        raise ValueError("a number is out of range")
    else:
        left -= 8
    if left < 0:
        raise ValueError(f"more than {MAX_METADATA_CHARS} characters")
    return left
