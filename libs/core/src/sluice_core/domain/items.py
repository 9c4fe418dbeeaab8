"""The choice of entries of a collection, as people write it: `1-3,7,20-`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluice_core.domain.errors import SluiceError

_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(?P<dash>-)?(?P<last>[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Items:
    """Which entries are wanted, counted from 1."""

    #: First and last of each range, both included; None is the collection's end.
    ranges: tuple[tuple[int, int | None], ...] = ((1, None),)

    @classmethod
    def parse(cls, text: str | None) -> Items:
        """Read `3`, `1-3`, `20-` and lists of these; nothing means all.

        Raises:
            SluiceError: `unsupported_url`, it is none of these.
        """
        if not text or not text.strip():
            return cls()
        return cls(tuple(_parse_range(part.strip()) for part in text.split(",")))

    def __contains__(self, index: int) -> bool:
        return any(first <= index <= (last or index) for first, last in self.ranges)

    @property
    def last(self) -> int | None:
        """The last index that can be wanted; None when there is no end."""
        ends = [last for _, last in self.ranges]
        return None if None in ends else max(end for end in ends if end is not None)


def _parse_range(text: str) -> tuple[int, int | None]:
    match = _RANGE.fullmatch(text)
    if match is None or (match["last"] and not match["dash"]):
        raise SluiceError(f"items {text!r} can't be read; write 1-3,7,20-", code="unsupported_url")
    first = int(match["first"])
    last = int(match["last"]) if match["last"] else None if match["dash"] else first
    if first < 1 or (last is not None and last < first):
        raise SluiceError(f"items {text!r} name no entry", code="unsupported_url")
    return first, last
