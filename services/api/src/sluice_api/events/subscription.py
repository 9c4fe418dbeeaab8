"""One listening client, as the hub sees it."""

from __future__ import annotations

from gevent.event import Event as Signal

from sluice_api.events.buffer import Buffer
from sluice_api.events.messages import Message, Watch

#: Jobs taken in one go: few enough to answer quickly, many enough to spare calls.
BATCH = 64


class Subscription:
    """Collects what one client wants to hear."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        #: Whether the client is known to have left.
        self.is_gone = False
        self._buffer = Buffer()
        self._signal = Signal()

    @property
    def overflowed(self) -> bool:
        """Whether the client was too slow for all that happened."""
        return self._buffer.overflowed

    def offer(self, message: Message) -> None:
        if self.watch.wants(message.job_id, message.api_key_id):
            self._buffer.put(message)
            self._signal.set()

    def go(self) -> None:
        """The client has left."""
        self.is_gone = True
        self._signal.set()

    def wake(self) -> None:
        """End a wait although there is nothing new."""
        self._signal.set()

    def take(self, timeout: float) -> list[Message]:
        """What is new, waiting up to `timeout` seconds; nothing then, or after `wake`."""
        if not self._buffer:
            self._signal.wait(timeout)
        self._signal.clear()
        return self._buffer.take(BATCH)
