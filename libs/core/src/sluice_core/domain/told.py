"""Figures as sites tell them: what can't be true is not known."""

from __future__ import annotations

#: Bytes, an exbibyte: more than any disk holds, and a column takes the sum of some of them.
MAX_BYTES = 2**60
#: Seconds: thirty years.
MAX_SECONDS = 1e9


def size_of(value: object) -> int | None:
    """Bytes; None for what is no number of them, or one that no media has."""
    return int(value) if _is_within(value, MAX_BYTES) else None  # type: ignore[call-overload]  # a number


def seconds_of(value: object) -> float | None:
    """Seconds that a media lasts; None as of `size_of`."""
    return float(value) if _is_within(value, MAX_SECONDS) else None  # type: ignore[arg-type]  # a number


def _is_within(value: object, most: float) -> bool:
    # What is not a number compares with none.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most
