"""Real threads for what would stop the event loop: a few, so that they can't pile up.

What only waits on patched sockets needs none, and must not have any: each thread would get an event
loop of its own, and locks that two of those wait for may never open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

import gevent
from gevent.lock import BoundedSemaphore
from gevent.threadpool import ThreadPool

_T = TypeVar("_T")


class Threads:
    """Runs functions in threads while the calling greenlet waits.

    Args:
        size: how many may run at once; more wait their turn.
        real: False runs them in the calling greenlet, for work that does not stop the event loop.
        patience: seconds that a caller waits; None waits as long as it takes.

    """

    def __init__(self, size: int, *, real: bool = True, patience: float | None = None) -> None:
        self._size = size
        self._patience = patience
        self._turn = None if real else BoundedSemaphore(size)
        self._pool: ThreadPool | None = None

    def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`, or what it raised.

        Raises:
            TimeoutError: `patience` is over; what has begun goes on to its end all the same.

        """
        if self._turn is not None:
            with self._turn:
                return work()
        if self._pool is None:
            # Made by the process that uses it: threads do not survive a fork.
            self._pool = ThreadPool(self._size)
        # Log lines and new jobs there belong to the caller's request.
        run = copy_context().run
        outcome: tuple[_T, None] | tuple[None, BaseException]
        with gevent.Timeout(self._patience, TimeoutError(f"no end within {self._patience} s")):
            outcome = self._pool.apply(run, (_caught, work))
        value, error = outcome
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # one of the two is there

    def close(self) -> None:
        if self._pool is not None:
            self._pool.kill()
            self._pool = None


def _caught(work: Callable[[], _T]) -> tuple[_T, None] | tuple[None, BaseException]:
    """The pool would print what a thread raised, although its caller handles it."""
    try:
        return work(), None
    except BaseException as exc:  # noqa: BLE001  # raised again in the caller
        return None, exc
