"""JSON lines between a forked child and its runner."""

from __future__ import annotations

import json
from typing import Any

from sluice_core.domain.errors import ErrorClass, SluiceError

#: The `event` of a line that carries a failure; the child ends after it.
ERROR = "error"


def encode_line(event: dict[str, Any]) -> bytes:
    """One JSON line; lone surrogates, which no store would take, become question marks."""
    return json.dumps(event, ensure_ascii=False).encode("utf-8", errors="replace") + b"\n"


def error_event(error: SluiceError) -> dict[str, Any]:
    """Return a failure as an event."""
    return {
        "event": ERROR,
        "code": error.code,
        "class": error.error_class.value,
        "message": error.message,
        "retry_after": error.retry_after,
    }


def error_from_event(event: dict[str, Any]) -> SluiceError:
    """The failure that an event of `error_event` carries."""
    return SluiceError(
        event["message"],
        code=event["code"],
        error_class=ErrorClass(event["class"]),
        retry_after=event["retry_after"],
    )
