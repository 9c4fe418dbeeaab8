"""Declaring actors, explicitly and on a given broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dramatiq

from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.domain.lanes import Actor, Lane, queue_name, queues_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice_core.runtime.broker.broker import SluiceBroker


def declare_actor(
    broker: SluiceBroker,
    actor: Actor,
    fn: Callable[..., None],
    *,
    time_limit: float | None = None,
) -> None:
    """Let `fn` handle the messages of all lanes of `actor`; it is called with the ids by name.

    Args:
        time_limit: seconds after which the final guard cuts the run; None takes the guard's own.

    Raises:
        ValueError: the actor has been declared on this broker.

    """
    # A store that is away is told by the pause; it needs no stack trace per message.
    options: dict[str, object] = {"throws": (StoreAwayError, BrokerAwayError)}
    if time_limit is not None:
        options["time_limit"] = time_limit * 1000
    dramatiq.Actor(
        fn,
        broker=broker,
        actor_name=actor.value,
        queue_name=queue_name(actor, Lane.DEFAULT),
        priority=0,
        options=options,
    )
    for queue in queues_of(actor):
        broker.declare_queue(queue)
