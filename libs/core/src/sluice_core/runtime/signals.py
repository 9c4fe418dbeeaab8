"""Signals that end a process, noticed by its main thread."""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType


class EndSignals:
    """Counts SIGTERM and SIGINT; anything can wake whoever waits.

    A pipe instead of an event of `threading`: its lock may be held by the very thread that the
    handler interrupts.
    """

    def __init__(self) -> None:
        self.count = 0
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def listen(self) -> None:
        """Take the signals over; from the main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def close(self) -> None:
        """Give the signals back."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._out)
        os.close(self._in)

    def _take(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.wake()

    def wake(self) -> None:
        """End a wait from any thread."""
        try:
            os.write(self._in, b"x")
        except BlockingIOError:
            return  # full: whoever waits is woken already

    def wait(self, seconds: float) -> None:
        """Until a signal comes or somebody wakes, at most so long."""
        deadline = time.monotonic() + seconds
        while not self.count:
            left = deadline - time.monotonic()
            if left <= 0 or select.select([self._out], [], [], left)[0]:
                break
        try:
            while os.read(self._out, 4096):
                pass
        except BlockingIOError:
            return
