"""Every log line of a run names its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq
from structlog.contextvars import bind_contextvars, clear_contextvars

if TYPE_CHECKING:
    from dramatiq import Broker
    from dramatiq.broker import MessageProxy


class LogContext(dramatiq.Middleware):
    """Binds actor, queue, message id, times delivered and the ids that the message carries."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        clear_contextvars()
        bind_contextvars(
            actor=message.actor_name,
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
        clear_contextvars()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        clear_contextvars()


_OWN = frozenset({"actor", "queue", "message_id", "tries", "event"})
