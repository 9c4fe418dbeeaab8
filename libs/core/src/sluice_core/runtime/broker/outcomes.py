"""What becomes of a message once its run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from sluice_core.runtime.broker.middleware.shutdown import NotStartedError
from sluice_core.runtime.broker.scripts import Settle

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

    from sluice_core.runtime.broker.settler import Settler
    from sluice_core.runtime.broker.slots import Slots

log = structlog.get_logger(__name__)


class Outcomes:
    """Stands where dramatiq's worker threads expect their consumer.

    Every outcome of a run is written to the database by the run itself. So a message whose actor
    returned is done with, and one whose actor raised is not: nobody knows what became of it.

    Args:
        pause: seconds until the message of a raised run is queued again, behind all others.

    """

    def __init__(self, *, slots: Slots, settler: Settler, pause: float) -> None:
        self._slots = slots
        self._settler = settler
        self._pause = pause

    def post_process_message(self, message: MessageProxy) -> None:
        """Called by a worker thread, however its message ended."""
        message_id = message.options["redis_message_id"]
        # dramatiq itself acknowledges a message whose actor raised, unless a middleware fails it.
        what, delay = self._decide(message._exception)  # noqa: SLF001  # pinned by a test
        nudge = self._slots.release(message_id)
        self._settler.settle(what, message.queue_name, message_id, delay=delay, nudge=nudge)

    def _decide(self, error: BaseException | None) -> tuple[Settle, float]:
        if error is None:
            return Settle.ACK, 0.0
        if isinstance(error, NotStartedError):
            return Settle.FRONT, 0.0
        log.warning("message_returned", error=repr(error), pause=self._pause)
        return Settle.BACK, self._pause
