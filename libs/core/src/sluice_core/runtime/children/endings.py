"""What an `EndReason` means for the run: the same in every stage."""

from __future__ import annotations

from sluice_core.domain.errors import (
    CanceledRunError,
    HandBackError,
    SluiceError,
    StaleRunError,
)
from sluice_core.runtime.children.spec import EndReason


def error_for(reason: str) -> Exception | None:  # noqa: PLR0911  # a table
    """The exception that ends the run; None where its child ended by itself.

    A word of the caller's own asks to hand the job back, as a drain does.
    """
    match reason:
        case EndReason.EXITED:
            return None
        case EndReason.CANCELED:
            return CanceledRunError("the job was canceled")
        case EndReason.STALE:
            return StaleRunError("another run owns the job")
        case EndReason.STALLED:
            return SluiceError(code="stalled")
        case EndReason.SOFT_LIMIT:
            return SluiceError("the stage took longer than its time limit", code="timeout")
        case EndReason.DEADLINE | EndReason.HARD_LIMIT:
            return SluiceError(code="hard_time_limit")
        case _:
            return HandBackError(reason)
