"""The atomic steps of the broker: Lua files with one Python call each.

Every call raises `BrokerAwayError` when Redis can't answer.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Any

from sluice_core.adapters.redis import call
from sluice_core.runtime.broker.names import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis

_NAMES = (
    "publish",
    "fetch",
    "settle",
    "reconcile",
    "reap",
    "beat",
    "stats",
    "remove",
    "sight",
    "pause",
)


class Settle(StrEnum):
    """What becomes of a message that a worker was given."""

    #: It is done with, and forgotten.
    ACK = "ack"
    #: It goes before all that wait: nothing of it was begun.
    FRONT = "front"
    #: It goes behind all that wait: it was tried.
    BACK = "back"


class Scripts:
    """All scripts, registered on one client; loaded by the server when first used."""

    def __init__(self, client: redis.Redis) -> None:
        folder = resources.files("sluice_core.runtime.broker") / "lua"
        common = (folder / "common.lua").read_text("utf-8")
        self._scripts = {
            name: client.register_script(common + (folder / f"{name}.lua").read_text("utf-8"))
            for name in _NAMES
        }

    def publish(self, entries: Iterable[tuple[str, str, bytes, str]]) -> list[bool]:
        """Store and queue (queue, id, message, owner); True for each id that was not known yet.

        An owner shares its queue fairly with others; "" is none.
        """
        args = [part for entry in entries for part in entry]
        return [bool(new) for new in self._run("publish", args)]

    def fetch(
        self,
        worker_id: str,
        *,
        idle: int,
        room: int,
        starve_ms: int,
        starve_every: int,
        turns: str,
        lanes: Sequence[tuple[str, bool]],
    ) -> list[tuple[str, str, bytes, int]]:
        """Take up to `idle` messages: (queue, id, message, times handed out).

        Args:
            idle: slots to fill.
            room: how many of them reserved lanes may take.
            starve_ms: a lane whose next message waits this long is starved.
            starve_every: such a lane gets one slot in this many.
            turns: name of the counter behind that.
            lanes: (queue, is reserved), highest first.

        """
        pairs = [part for queue, reserved in lanes for part in (queue, str(int(reserved)))]
        rows = self._run("fetch", [worker_id, idle, room, starve_ms, starve_every, turns, *pairs])
        return [(queue.decode(), _text(id_), data, tries) for queue, id_, data, tries in rows]

    def settle(
        self, worker_id: str, what: Settle, queue: str, message_id: str, *, nudge: bool
    ) -> bool:
        """Settle one message; False when it was not this worker's any more."""
        args = [worker_id, what.value, queue, message_id, str(int(nudge))]
        return bool(self._run("settle", args))

    def reconcile(self, worker_id: str, queues: Sequence[str], held: Iterable[str]) -> int:
        """Return to their queues what the worker's ack sets name and `held` does not."""
        return int(self._run("reconcile", [worker_id, len(queues), *queues, *held]))

    def reap(self, max_age_ms: int, queues: Sequence[str]) -> int:
        """Return to their queues what workers hold that gave no sign of life for so long."""
        return int(self._run("reap", [max_age_ms, *queues]))

    def beat(self, worker_id: str) -> None:
        """Say that the worker lives."""
        self._run("beat", [worker_id, "beat"])

    def nudge(self, worker_id: str, queues: Sequence[str] = ()) -> None:
        """End the worker's blocking wait; wake another one for what waits in `queues`."""
        self._run("beat", [worker_id, "nudge", *queues])

    def leave(self, worker_id: str, queues: Sequence[str]) -> bool:
        """Take the worker off the list; False, and it stays, while it still holds something."""
        return bool(self._run("beat", [worker_id, "leave", *queues]))

    def stats(self, queues: Sequence[str]) -> list[tuple[int, int, int]]:
        """(waiting, in flight, age of the next message in ms or -1) per queue."""
        return [(row[0], row[1], row[2]) for row in self._run("stats", queues)]

    def sight(self, entries: Iterable[tuple[str, str]]) -> list[tuple[str, int, int, str]]:
        """(place, how many come first or -1, times handed out, holder or "") per (queue, id)."""
        rows = self._run("sight", [part for entry in entries for part in entry])
        return [(p.decode(), before, tries, holder.decode()) for p, before, tries, holder in rows]

    def pause(self, queues: Sequence[str]) -> None:
        """Hand out nothing of them; running work goes on."""
        self._run("pause", ["pause", *queues])

    def resume(self, queues: Sequence[str]) -> None:
        """Hand out again, and wake who waits for it."""
        self._run("pause", ["resume", *queues])

    def remove(self, queue: str, message_id: str) -> bool:
        """Take a waiting message away; False when it does not wait."""
        return bool(self._run("remove", [queue, message_id]))

    def _run(self, name: str, args: Sequence[Any]) -> Any:  # each caller knows the shape
        with call():
            return self._scripts[name](keys=[NAMESPACE], args=list(args))


def _text(raw: bytes) -> str:
    """An id as text; one that is no UTF-8 keeps its bytes, so that it can still be settled."""
    return raw.decode("utf-8", "surrogateescape")
