"""Values by the names of their fields."""

from __future__ import annotations

from typing import Any


def members(value: Any) -> dict[str, Any]:
    """The fields of a dataclass with slots, in order.

    Not `dataclasses.asdict`, which copies deeply: of what a request costs, that was a twentieth.
    """
    return {name: getattr(value, name) for name in value.__slots__}
