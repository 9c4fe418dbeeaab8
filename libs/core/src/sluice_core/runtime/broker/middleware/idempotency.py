"""A duplicate of what runs already is dropped before it costs a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq
import structlog
from dramatiq.middleware import SkipMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Broker
    from dramatiq.broker import MessageProxy

    from sluice_core.runtime.locks import RunLocks

log = structlog.get_logger(__name__)


class IdempotencyLock(dramatiq.Middleware):
    """Skips, and so acknowledges, a message whose job a later run holds.

    Args:
        locks: of this process's stage.
        on_contended: called for each message that is dropped.

    """

    def __init__(self, locks: RunLocks, on_contended: Callable[[], None] = lambda: None) -> None:
        self._locks = locks
        self._on_contended = on_contended

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        job_id, epoch = message.kwargs.get("job"), message.kwargs.get("epoch")
        if not isinstance(job_id, str) or not isinstance(epoch, int):
            return
        if self._locks.is_behind(job_id, epoch):
            log.info("lock_contended", job=job_id, epoch=epoch)
            self._on_contended()
            raise SkipMessage("a later run holds the job")
