"""Sends each client what it collected, all of them in turn by one loop."""

from __future__ import annotations

import itertools
import time

import gevent
from gevent.event import Event as Signal

from sluice_api.events.audience import Audience
from sluice_api.events.client import Client

#: Seconds between looks who is to be sent a comment.
TICK = 0.5
#: Clients sent to before others than these have a turn.
SENT = 200


class Dispatcher:
    """Clients with something to send, and the loops that send it.

    Args:
        audience: all clients of this process.

    """

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        #: The one that waited longest first.
        self._ready: dict[Client, None] = {}
        self._news = Signal()
        self.is_closing = False

    def ready(self, client: Client) -> None:
        """There is something to send, or room to send it; does not wait."""
        self._ready[client] = None
        self._news.set()

    def leave(self, client: Client) -> None:
        """Nothing more is sent to this client; idempotent."""
        self._audience.discard(client)
        self._ready.pop(client, None)
        client.close()

    def stop(self) -> None:
        """Let all streams end; safe in a signal handler."""
        self.is_closing = True
        self._news.set()

    def dismiss_all(self) -> None:
        """Send everybody away; they come back soon, to whichever process."""
        for client in self._audience:
            client.dismiss()
            self.leave(client)

    def send(self) -> None:
        """A loop, as long as there is anybody: send what is new."""
        while self._audience:
            self._news.wait()
            self._news.clear()
            while self._ready and not self.is_closing:
                for client in list(itertools.islice(self._ready, SENT)):
                    self._ready.pop(client, None)
                    if not client.push():
                        self.leave(client)
                # Requests and Redis have their turn too.
                gevent.sleep(0)
            if self.is_closing:
                self.dismiss_all()

    def comment(self) -> None:
        """A loop, as long as there is anybody: give those a comment that were told nothing."""
        while self._audience:
            gevent.sleep(TICK)
            now = time.monotonic()
            for client in self._audience:
                if now >= client.ping_at:
                    self.ready(client)
