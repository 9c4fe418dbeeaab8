"""Messages as they come: Redis may hold anything, and only what an order says is given to an actor.

What got through would raise within its run, which does not tell a fault of the message from one of
a store: it would come again for ever.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dramatiq.errors import DecodeError
from dramatiq.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Actor

#: Characters of an id, and of a trace's place, whoever made them; ours have 26 and 55.
MAX_ID, MAX_TRACEPARENT = 64, 512
#: What an integer column holds; and, in milliseconds, the last day that a calendar here has.
MAX_EPOCH, MAX_TIMESTAMP = 2**31 - 1, 253_402_214_400_000


def decode(queue: str, message_id: str, data: bytes, tries: int) -> Message[object]:
    """The message as the worker threads need it.

    Queue and id are those it was fetched by, whatever it says itself: it is settled by them.

    Raises:
        DecodeError: it is no message of ours.

    """
    message: Message[object] = Message.decode(data)
    faults = {
        "its id is none": not _is_id(message_id),
        "no actor": not isinstance(message.actor_name, str),
        "no named arguments": not isinstance(message.kwargs, dict),
        "arguments without names": bool(message.args),
        "options are no mapping": not isinstance(message.options, dict),
        "no time": not _is_number(message.message_timestamp, MAX_TIMESTAMP),
    }
    _refuse(next((words for words, wrong in faults.items() if wrong), None), data)
    options = {"redis_message_id": message_id, "tries": tries}
    return message.copy(queue_name=queue, message_id=message_id, options=options)


#: The same few actors, for each message.
_signature = lru_cache(maxsize=16)(inspect.signature)


def check_call(actor: Actor[..., Any], message: Message[object], data: bytes) -> None:
    """See that the actor can be called with what the message carries.

    Raises:
        DecodeError: it can't.

    """
    wrong = (
        name
        for name, value in message.kwargs.items()
        if name in _VALUES and not _VALUES[name](value)
    )
    name = next(wrong, None)
    _refuse(f"{name} is none" if name else None, data)
    try:
        _signature(actor.fn).bind(**message.kwargs)
    except TypeError as exc:
        _refuse(str(exc), data)


def _refuse(why: str | None, data: bytes) -> None:
    if why is not None:
        raise DecodeError(why, data, None)  # type: ignore[no-untyped-call]  # the library's


def _is_id(value: object) -> bool:
    return _is_plain(value, MAX_ID) and bool(value)


def _is_plain(value: object, most: int) -> bool:
    """Whether each store takes it as it is: neither NUL nor half a surrogate is printable."""
    return isinstance(value, str) and len(value) <= most and value.isprintable()


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


_VALUES: dict[str, Callable[[object], bool]] = {
    "job": _is_id,
    "epoch": lambda value: _is_number(value, MAX_EPOCH),
    "traceparent": lambda value: value is None or _is_plain(value, MAX_TRACEPARENT),
}
