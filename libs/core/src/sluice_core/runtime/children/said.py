"""What a child writes to stderr, as log lines of its run."""

from __future__ import annotations

import structlog

from sluice_core.runtime.children.lines import LineSplitter

log = structlog.get_logger(__name__)

#: Lines of one child that are shown; the others are counted.
MAX_SHOWN = 50
#: Characters of a line that are shown.
MAX_WIDTH = 500


class Said:
    """Logs with whatever the calling thread has bound: job, stage, attempt, message, trace."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._count = 0

    def feed(self, data: bytes) -> None:
        self._show(self._splitter.feed(data))

    def close(self) -> None:
        """Say what is left, and how much was left out."""
        self._show(self._splitter.close())
        left_out = max(0, self._count - MAX_SHOWN) + self._splitter.dropped
        if left_out:
            log.info("child_said_more", lines=left_out)

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            text = line.strip()
            if not text:
                continue
            self._count += 1
            if self._count <= MAX_SHOWN:
                log.info("child_said", line=text[:MAX_WIDTH])
