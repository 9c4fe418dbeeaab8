"""Every log line of a run names its message, and the trace that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq
from structlog.contextvars import bind_contextvars

from sluice_core.adapters import tracing

if TYPE_CHECKING:
    from dramatiq import Broker
    from dramatiq.broker import MessageProxy

#: What a line says by itself; a message that carries one of these must not say otherwise.
_OWN = frozenset({"stage", "queue", "message_id", "tries", "event", "traceparent", "trace_id"})


class LogContext(dramatiq.Middleware):
    """Binds stage, queue, message id, times delivered and the ids that the message carries."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        traceparent = message.kwargs.get("traceparent")
        tracing.enter(traceparent if isinstance(traceparent, str) else None)
        bind_contextvars(
            stage=message.actor_name,
            queue=message.queue_name,
            message_id=message.message_id,
            tries=message.options.get("tries"),
            **{name: value for name, value in message.kwargs.items() if name not in _OWN},
        )

    def after_process_message(
        self,
        broker: Broker,  # noqa: ARG002  # hook
        message: MessageProxy,  # noqa: ARG002
        *,
        result: object = None,  # noqa: ARG002
        exception: BaseException | None = None,  # noqa: ARG002
    ) -> None:
        tracing.leave()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        tracing.leave()
