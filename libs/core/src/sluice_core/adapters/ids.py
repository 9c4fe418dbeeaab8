"""Ids that sort by the time they were made."""

from __future__ import annotations

import re

from ulid import ULID

#: A pattern of ids, and of nothing beside them.
FORM = "[0-9A-Z]{26}"


def new_id() -> str:
    """26 characters, upper-case letters and digits; safe in paths, addresses and file names."""
    return str(ULID())


def is_id(text: str) -> bool:
    """Whether it could be one of ours."""
    return re.fullmatch(FORM, text) is not None


def id_at(moment: float) -> str:
    """The least id of a moment, Unix seconds: what was made since then is not below it."""
    return str(ULID.from_bytes(max(0, int(moment * 1000)).to_bytes(6, "big") + bytes(10)))
