"""Who listens in this process, found by what they listen to."""

from __future__ import annotations

from collections.abc import Iterator

from sluice_api.events.client import Client
from sluice_api.events.messages import Message


class Audience:
    """Clients; a message finds its own without asking all of them."""

    def __init__(self) -> None:
        self._all: set[Client] = set()
        #: Those who follow everything that they may see.
        self._of_everything: set[Client] = set()
        self._of_job: dict[str, set[Client]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._all))

    def add(self, client: Client) -> None:
        self._all.add(client)
        if client.watch.ids is None:
            self._of_everything.add(client)
        for job_id in client.watch.ids or ():
            self._of_job.setdefault(job_id, set()).add(client)

    def discard(self, client: Client) -> None:
        """Harmless when it is not there."""
        self._all.discard(client)
        self._of_everything.discard(client)
        for job_id in client.watch.ids or ():
            listening = self._of_job.get(job_id, set())
            listening.discard(client)
            if not listening:
                self._of_job.pop(job_id, None)

    def named(self) -> set[str]:
        """Jobs that somebody follows by name."""
        return set(self._of_job)

    def tell(self, message: Message) -> None:
        """Offer the message to whoever wants it."""
        for client in self._of_everything:
            client.offer(message)
        for client in self._of_job.get(message.job_id, ()):
            client.offer(message)
