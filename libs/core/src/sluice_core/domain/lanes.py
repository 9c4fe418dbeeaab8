"""Stages, actors and the priority lanes of their queues."""

from __future__ import annotations

from enum import StrEnum


class Actor(StrEnum):
    """Who consumes a message; each has its own queues `<actor>.<lane>`, but for `HELP`."""

    PARSE = "parse"
    DOWNLOAD = "download"
    TRANSCODE = "transcode"
    NOTIFY = "notify"
    SETTLE = "settle"
    #: Encodes segments of a run that another slot holds; waits in the queues of `TRANSCODE`.
    HELP = "help"


#: The actors that carry a job forward, in order.
STAGES = (Actor.PARSE, Actor.DOWNLOAD, Actor.TRANSCODE)

#: The actors that have queues.
CONSUMERS = tuple(actor for actor in Actor if actor is not Actor.HELP)


class Lane(StrEnum):
    """Priority, highest first."""

    CRITICAL = "critical"
    HIGH = "high"
    DEFAULT = "default"
    LOW = "low"
    BULK = "bulk"


#: Highest first: a freed slot takes the first lane that has work.
LANES = tuple(Lane)

#: Lanes that may never hold every slot of a pool.
RESERVED_FROM = (Lane.LOW, Lane.BULK)


def queue_name(actor: Actor, lane: Lane) -> str:
    """`<actor>.<lane>`, e.g. `download.default`."""
    consumer = Actor.TRANSCODE if actor is Actor.HELP else actor
    return f"{consumer.value}.{lane.value}"


def queues_of(actor: Actor) -> tuple[str, ...]:
    """All queues of one actor, highest lane first."""
    return tuple(queue_name(actor, lane) for lane in LANES)
