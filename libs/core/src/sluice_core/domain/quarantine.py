"""When a job is taken for one that brings its worker down."""

from __future__ import annotations

#: Losses without progress after which a job runs in a process of its own: nobody is hurt by it
#: there, and what happens to that process is its own doing.
SUSPECT_AFTER = 2

#: Further losses for which nobody saw whose doing they were, because the worker that started the
#: process of its own was lost with it. Without a cap such a job would go round for ever.
UNSEEN_LOSSES = 2


def max_losses(lone_losses: int, *, seen: bool) -> int:
    """Losses at which a job is put aside.

    Args:
        lone_losses: of its own process that an operator allows.
        seen: whether the loss was seen by the worker that started that process.

    """
    return SUSPECT_AFTER + lone_losses + (0 if seen else UNSEEN_LOSSES)
