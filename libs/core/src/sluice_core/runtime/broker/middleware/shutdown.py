"""A drain is told to runs by an event, never by an exception thrown into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq
from dramatiq.errors import Retry
from dramatiq.middleware import MiddlewareError

if TYPE_CHECKING:
    from threading import Event

    from dramatiq import Broker
    from dramatiq.broker import MessageProxy


class NotStartedError(MiddlewareError, Retry):
    """The message arrived as its worker began to drain; it goes back untouched.

    A `Retry` too, which dramatiq does not log as an error.
    """


class DrainNotice(dramatiq.Middleware):
    """Starts no run once the worker shuts down, or runs are told to hand back."""

    def __init__(self, drain_event: Event) -> None:
        self._drain_event = drain_event
        self._shutting_down = False

    def before_worker_shutdown(self, broker: Broker, worker: object) -> None:  # noqa: ARG002  # hook
        self._shutting_down = True

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002  # hook
        if self._shutting_down or self._drain_event.is_set():
            raise NotStartedError("the worker is draining")
