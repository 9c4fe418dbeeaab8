"""The final guard against a run that nothing else ended."""

from __future__ import annotations

from dramatiq.middleware import TimeLimit


def final_guard(seconds: float = float("inf")) -> TimeLimit:
    """The time limit of dramatiq itself; must be the last in the list of middleware.

    It throws an exception into the worker's thread. Last in the list, it is armed after and
    disarmed before all other hooks, so that the exception can't land in one of them and take the
    thread along. The runs' own deadlines come first; this one is for code that ignores them.

    Args:
        seconds: for actors that name no limit of their own; endless by default.

    """
    return TimeLimit(time_limit=seconds * 1000)
