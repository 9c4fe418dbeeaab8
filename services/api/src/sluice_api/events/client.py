"""One listening client: what it wants, what it was not sent yet, and when its stream ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from sluice_api.events.buffer import Buffer
from sluice_api.events.line import Line
from sluice_api.events.messages import PING, Message, Watch, retry_soon

#: Seconds between comments.
PING_EVERY = 15.0
#: Bytes sent in one go: what a client that takes nothing can cost.
ENOUGH = 16_384


class Client:
    """Collects from the moment it is made; sends once it has a line.

    Args:
        watch: what it wants.
        still_allowed: asked at each comment, must not wait; the stream ends when it says no.
        on_news: called when there is something to send.
        ping_every: seconds between comments.

    """

    __slots__ = (
        "_buffer",
        "_line",
        "_on_news",
        "_ping_every",
        "_still_allowed",
        "floor",
        "ping_at",
        "watch",
    )

    def __init__(
        self,
        watch: Watch,
        *,
        still_allowed: Callable[[], bool],
        on_news: Callable[[Client], None],
        ping_every: float = PING_EVERY,
    ) -> None:
        self.watch = watch
        self._still_allowed = still_allowed
        self._on_news = on_news
        self._ping_every = ping_every
        self._buffer = Buffer()
        self._line: Line | None = None
        #: Versions sent at the start: what was collected meanwhile may be older.
        self.floor: dict[str, int] = {}
        #: When the next comment is due; see `time.monotonic`.
        self.ping_at = float("inf")

    def offer(self, message: Message) -> None:
        if self.watch.wants(message.job_id, message.api_key_id):
            self._buffer.put(message)
            if self._line is not None:
                self._on_news(self)

    def attach(self, line: Line) -> None:
        """The start was sent: from now on what happens goes here."""
        self._line = line
        self.ping_at = time.monotonic() + self._ping_every
        self._on_news(self)

    def push(self) -> bool:
        """Send what is new; False when the stream has ended, and the client is to be forgotten."""
        line = self._line
        if line is None or line.is_full:
            return True
        if self._buffer.overflowed:
            self.dismiss()
            return False
        data, is_over = self._take()
        if is_over:
            line.finish(data)
            return False
        if data:
            line.send(data)
            if len(self._buffer):
                self._on_news(self)
        return time.monotonic() < self.ping_at or self._ping(line)

    def dismiss(self) -> None:
        """Send it away; it comes back soon, and is told what it missed."""
        if self._line is not None:
            self._line.finish(retry_soon())

    def close(self) -> None:
        """Idempotent."""
        if self._line is not None:
            self._line.close()

    def _take(self) -> tuple[bytes, bool]:
        """Some of what was collected, and whether nothing will follow it."""
        parts: list[bytes] = []
        size = 0
        while len(self._buffer) and size < ENOUGH:
            for message in self._buffer.take(1):
                if self._is_fresh(message):
                    parts.append(message.wire_under(self.watch.prefix))
                    size += len(parts[-1])
                    if message.is_last and self.watch.ends:
                        return b"".join(parts), True
        return b"".join(parts), False

    def _is_fresh(self, message: Message) -> bool:
        floor = self.floor.get(message.job_id, -1)
        # A parent is told again at the same version when its children moved.
        return message.version > floor or (message.kind == "job" and message.version == floor)

    def _ping(self, line: Line) -> bool:
        if not self._still_allowed():
            line.finish(b"")
            return False
        if not line.is_full:
            line.send(PING)
        self.ping_at = time.monotonic() + self._ping_every
        return True
