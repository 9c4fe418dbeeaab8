"""Ids that sort by the time they were made."""

from __future__ import annotations

from ulid import ULID


def new_id() -> str:
    """26 characters, upper-case letters and digits; safe in paths, addresses and file names."""
    return str(ULID())
