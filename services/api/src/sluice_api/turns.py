"""Long work gives way: one loop serves every client, so that nobody may keep it for long."""

from __future__ import annotations

import time

import gevent

#: Seconds of work after which others have the loop.
SLICE = 0.01
#: `sleep(0)` goes on before any timer or socket was looked at, fifty times over.
_NEXT_ROUND = 1e-6


class Turns:
    """One greenlet's work on one request; others go first whenever it took its slice."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def give(self) -> None:
        """Let timers and sockets that are ready go first, once the slice is over."""
        if time.monotonic() - self._since >= SLICE:
            gevent.sleep(_NEXT_ROUND)
            self._since = time.monotonic()
