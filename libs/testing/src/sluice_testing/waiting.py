"""Waiting for what happens in another thread or process, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds until anything that does not come is given up. How soon it comes is no matter to who
#: waits: a machine that many tests share may take ten times as long as a free one.
PATIENCE = 120.0
#: So often a time is measured before it counts as too long.
_TRIES = 8
#: Seconds before the second look; each further pause is twice as long, up to `every`.
_FIRST_PAUSE = 0.002


def until(
    what: Callable[[], Any],
    *,
    timeout: float = PATIENCE,
    every: float = 0.1,
    why: str | Callable[[], str] = "",
) -> Any:
    """Wait for something true and return it.

    Args:
        what: asked again and again.
        timeout: seconds until it is given up.
        every: longest pause between two looks, seconds.
        why: what to say then; asked then, if it can be called.

    Raises:
        TimeoutError: it never was.

    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not (found := what()):
        if time.monotonic() > deadline:
            said = why() if callable(why) else why
            raise TimeoutError(said or f"{what} was not true within {timeout} s")
        time.sleep(min(pause, every))
        pause *= 2
    return found


def fastest(measure: Callable[[], float], *, below: float, tries: int = _TRIES) -> float:
    """Measure until it is below a limit, and return the least that was seen.

    What a busy machine adds to a time comes and goes; what the code adds is in each.

    Args:
        measure: does it once more and tells the seconds, or whatever grows with the load.
        below: what must be undercut once.
        tries: so often at most.

    """
    least = measure()
    for _ in range(tries - 1):
        if least < below:
            break
        least = min(least, measure())
    return least
