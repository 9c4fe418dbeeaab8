"""Counts the messages that a worker was done with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq

if TYPE_CHECKING:
    from dramatiq import Broker
    from dramatiq.broker import MessageProxy

    from sluice_core.adapters.metrics import WorkerMetrics


class Counted(dramatiq.Middleware):
    """Tells the metrics of each message's end.

    Args:
        metrics: of this process.

    """

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def after_process_message(
        self,
        broker: Broker,  # noqa: ARG002  # hook
        message: MessageProxy,
        *,
        result: object = None,  # noqa: ARG002
        exception: BaseException | None = None,
    ) -> None:
        self._metrics.message(message.queue_name, "ok" if exception is None else "raised")

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        self._metrics.message(message.queue_name, "skipped")
