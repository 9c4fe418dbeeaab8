"""The body of one answer: what the client missed; then its connection goes to the hub."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from sluice_api.database import Database
from sluice_api.events.hub import Hub
from sluice_api.events.line import Line
from sluice_api.events.messages import RETRY, Watch, job_message, wire
from sluice_api.events.start import Known, Start, read_start
from sluice_api.positions import Positions


class HandedOverError(OSError):
    """The server is to let go of the connection as it is: somebody else goes on with it.

    An `OSError`, since those alone pass through gunicorn without a word on the connection.
    """


class Stream:
    """Collects from the moment it is made, and must be closed, which does nothing once handed over.

    Args:
        hub: tells what happens.
        database: tells what happened.
        positions: places in the queue.
        watch: what the client wants.
        known: see `start.known_from`.
        still_allowed: see `Client`.
        sock: the client's connection; without one the stream ends after its start.
        is_chunked: whether the server sends this body in chunks.

    Raises:
        StoreAwayError: it can't be told what happened.

    """

    def __init__(
        self,
        *,
        hub: Hub,
        database: Database,
        positions: Positions,
        watch: Watch,
        known: Known | None,
        still_allowed: Callable[[], bool],
        sock: socket.socket | None,
        is_chunked: bool,
    ) -> None:
        self._hub = hub
        self._positions = positions
        self._watch = watch
        self._since = known.since if known else 0.0
        self._sock = sock
        self._is_chunked = is_chunked
        self._handed_over = False
        self._client = hub.join(watch, still_allowed)
        try:
            self.start: Start = database.read(lambda c: read_start(c, watch, known))
        except BaseException:
            self.close()
            raise
        hub.note(self.start.versions)

    def close(self) -> None:
        """Idempotent."""
        if not self._handed_over:
            self._hub.leave(self._client)

    def __iter__(self) -> Iterator[bytes]:
        yield b"".join((RETRY, *self._first()))
        if self._sock is not None and not (self._watch.ends and self.start.is_over):
            self._hand_over(self._sock)
            raise HandedOverError

    def _first(self) -> Iterator[bytes]:
        shown = self.start.shown
        places = self._positions.find({s.job.id: s.message for s in shown if s.message})
        left = len(shown)
        if self.start.is_snapshot:
            yield wire("snapshot", {"jobs": left}, self._id(left))
        for one in shown:
            left -= 1
            self._client.floor[one.job.id] = one.job.version
            view = one.view(places.get(one.job.id))
            yield job_message(one.job, view, self._id(left)).wire_under(self._watch.prefix)

    def _id(self, left: int) -> str:
        """Who leaves before the last of the start knows no more than when it came."""
        return f"{int(self._since * 1000)}-0" if left else self._hub.event_id()

    def _hand_over(self, sock: socket.socket) -> None:
        client, hub = self._client, self._hub
        line = Line(
            sock.detach(),
            is_chunked=self._is_chunked,
            on_gone=lambda: hub.leave(client),
            on_ready=lambda: hub.ready(client),
        )
        self._handed_over = True
        client.attach(line)
