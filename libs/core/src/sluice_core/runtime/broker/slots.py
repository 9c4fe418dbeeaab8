"""What one process holds: which slots are taken, by what, and who may fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition


@dataclass(frozen=True, slots=True)
class Room:
    """What a fetch may bring in."""

    #: Changes whenever the answer could have changed.
    generation: int
    #: Free slots, at least one.
    idle: int
    #: How many of them reserved lanes may take.
    reserved: int


class Slots:
    """The slots of one process, shared by its threads.

    A message is *held* from its fetch until its run ended, and *unsettled* from then until the
    server knows. Only held ones take a slot, so that a slow server blocks nobody; too many
    unsettled ones stop fetching.

    Args:
        count: slots, one per worker thread.
        keep_one: leave one slot to lanes that are not reserved, if there are two or more.
        max_unsettled: cap on messages whose end the server does not know yet.

    """

    def __init__(self, count: int, *, keep_one: bool = True, max_unsettled: int = 100) -> None:
        self.count = count
        self._reserved_cap = count - 1 if keep_one and count > 1 else count
        self._max_unsettled = max_unsettled
        self._changed = Condition()
        self._generation = 0
        self._held: dict[str, bool] = {}
        self._unsettled: set[str] = set()
        self._pauses: set[str] = set()
        self._blocked = False

    def wait_for_room(self, timeout: float) -> Room | None:
        """Wait until something may be fetched; None after `timeout` seconds without."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, timeout):
                return None
            return Room(
                generation=self._generation,
                idle=self.count - len(self._held),
                reserved=self._reserved_cap - sum(self._held.values()),
            )

    def hold(self, message_id: str, *, reserved: bool) -> None:
        """A fetched message takes a slot."""
        with self._changed:
            self._held[message_id] = reserved

    def release(self, message_id: str) -> bool:
        """Free the slot of a message whose run ended.

        Returns:
            Whether the consumer waits at the server for less than it could now take, and must be
            told.

        """
        with self._changed:
            self._held.pop(message_id, None)
            self._unsettled.add(message_id)
            self._bump()
            return self._blocked

    def settled(self, message_id: str) -> None:
        """The server knows the message's end."""
        with self._changed:
            self._unsettled.discard(message_id)
            self._changed.notify_all()

    def try_block(self, room: Room, *, narrow: bool) -> bool:
        """About to wait at the server: False when something changed since `room` was told.

        Args:
            room: what the last fetch was made for.
            narrow: some lanes are not waited for, so a freed slot must end the wait.

        """
        with self._changed:
            if self._generation != room.generation or self._pauses:
                return False
            self._blocked = narrow
            return True

    def unblock(self) -> None:
        """The wait at the server is over."""
        with self._changed:
            self._blocked = False

    def pause(self, why: str) -> bool:
        """Fetch no more until `why` is over; True when that is news."""
        with self._changed:
            news = why not in self._pauses
            self._pauses.add(why)
            if news:
                self._bump()
            return news

    def resume(self, why: str) -> bool:
        """`why` is over; True when that is news."""
        with self._changed:
            news = why in self._pauses
            self._pauses.discard(why)
            if news:
                self._bump()
            return news

    def is_paused(self) -> bool:
        with self._changed:
            return bool(self._pauses)

    def known(self) -> frozenset[str]:
        """Ids that are held or unsettled."""
        with self._changed:
            return frozenset(self._held) | self._unsettled

    def held(self) -> frozenset[str]:
        """Ids that take a slot."""
        with self._changed:
            return frozenset(self._held)

    def wait_until_free(self, timeout: float) -> bool:
        """Wait until no slot is taken; False after `timeout` seconds."""
        return self._wait(lambda: not self._held, timeout)

    def wait_until_settled(self, timeout: float) -> bool:
        """Wait until the server knows all ends; False after `timeout` seconds."""
        return self._wait(lambda: not self._unsettled, timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _has_room(self) -> bool:
        return (
            not self._pauses
            and len(self._held) < self.count
            and len(self._unsettled) < self._max_unsettled
        )

    def _bump(self) -> None:
        self._generation += 1
        self._changed.notify_all()
