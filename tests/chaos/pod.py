"""A second transcoder beside the system's own, as another pod of its pool: it helps."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from sluice_testing.system import System

#: Seconds between two starts at least: one that ends at once must not take the machine.
PAUSE = 3.0
#: Seconds that it gets to drain.
END = 30.0


class Pod:
    """Started again whenever it ends, as Kubernetes does, until it is scaled away.

    Args:
        system: whose stores it shares.
        log: what it says goes here.

    """

    def __init__(self, system: System, log: Path) -> None:
        self._system = system
        self._log = log
        self._started_at = float("-inf")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> psutil.Process | None:
        """The one that runs now."""
        if self._process is None or self._process.poll() is not None:
            return None
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid)
        return None

    def family(self) -> list[psutil.Process]:
        """It and everything below it."""
        root = self.process
        with suppress(psutil.NoSuchProcess):
            return [root, *root.children(recursive=True)] if root else []
        return []

    def keep_up(self) -> None:
        """Start it unless it runs; a socket that is not there yet is there the next time."""
        if self.process is None and time.monotonic() > self._started_at + PAUSE:
            self._started_at = time.monotonic()
            with suppress(StopIteration):
                self._process = self._system.another(
                    "transcoder", log=self._log, SLUICE_TRANSCODE_LANES="bulk"
                )

    def scale_away(self) -> None:
        """End it as a pod is ended; from then on the system is alone.

        Raises:
            subprocess.TimeoutExpired: it does not end.

        """
        if self._process is not None:
            self._process.terminate()
            self._process.wait(END)
