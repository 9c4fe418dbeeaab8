"""Who listens in this process, found by what they listen to."""

from __future__ import annotations

from collections.abc import Iterator

from sluice_api.events.messages import Message
from sluice_api.events.subscription import Subscription


class Audience:
    """Subscriptions; a message finds its own without asking all of them."""

    def __init__(self) -> None:
        self._all: set[Subscription] = set()
        #: Those who follow everything that they may see.
        self._of_everything: set[Subscription] = set()
        self._of_job: dict[str, set[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._all))

    def add(self, subscription: Subscription) -> None:
        self._all.add(subscription)
        if subscription.watch.ids is None:
            self._of_everything.add(subscription)
        for job_id in subscription.watch.ids or ():
            self._of_job.setdefault(job_id, set()).add(subscription)

    def discard(self, subscription: Subscription) -> None:
        """Harmless when it is not there."""
        self._all.discard(subscription)
        self._of_everything.discard(subscription)
        for job_id in subscription.watch.ids or ():
            listening = self._of_job.get(job_id, set())
            listening.discard(subscription)
            if not listening:
                self._of_job.pop(job_id, None)

    def named(self) -> set[str]:
        """Jobs that somebody follows by name."""
        return set(self._of_job)

    def tell(self, message: Message) -> None:
        """Offer the message to whoever wants it."""
        for subscription in self._of_everything:
            subscription.offer(message)
        for subscription in self._of_job.get(message.job_id, ()):
            subscription.offer(message)
