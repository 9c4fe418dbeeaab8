"""What one client has not been sent yet: the latest of each job, and no more than so many jobs."""

from __future__ import annotations

from collections import OrderedDict

from sluice_api.events.messages import Message

#: Jobs that may wait for one slow client; it is sent away beyond, and comes back for a snapshot.
MAX_JOBS = 5_000


class Buffer:
    """Keeps the latest `job` and the latest `progress` after it, per job, oldest first."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        self._slots: OrderedDict[str, list[Message]] = OrderedDict()
        #: True once something had to be thrown away.
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, message: Message) -> None:
        slot = self._slots.get(message.job_id, [])
        if slot and message.version < slot[-1].version:
            return
        is_progress = message.kind == "progress"
        slot = [m for m in slot if m.kind != "progress"] if is_progress else []
        if not slot and len(self._slots) >= self._max_jobs and message.job_id not in self._slots:
            self.overflowed = True
            return
        self._slots[message.job_id] = [*slot, message]
        # The id of an event says that all before it was sent: a newer one must not overtake.
        self._slots.move_to_end(message.job_id)

    def take(self, limit: int) -> list[Message]:
        """Up to so many jobs' messages, oldest first."""
        taken: list[Message] = []
        for _ in range(min(limit, len(self._slots))):
            taken += self._slots.popitem(last=False)[1]
        return taken
