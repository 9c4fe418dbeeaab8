"""What the supervisor is told to run, as plain values that survive an exec."""

from __future__ import annotations

import json
from typing import NamedTuple


class Part(NamedTuple):
    """One program to keep alive."""

    name: str
    command: tuple[str, ...]
    #: Lower levels start first and stop last; the parts of one level do so together.
    level: int = 1
    #: Unix socket that must accept connections before the next level starts.
    socket: str | None = None
    #: Where to look when it does not start.
    log: str = ""
    #: Whether other parts are forked from this one, see `nursery`.
    nursery: bool = False
    #: Whether it is forked from the nursery by its name; `command` is for when there is none.
    forked: bool = False


class Plan(NamedTuple):
    """Everything that one supervisor needs to know; holds no secret."""

    parts: tuple[Part, ...]
    #: Where people find the system, printed once it is ready.
    url: str
    #: Address of `/readyz`; no port, no question.
    host: str = "127.0.0.1"
    port: int = 0
    #: Where others find out that this instance runs; empty writes none.
    state_file: str = ""
    #: Whether it ends with the command that started it: others should not lean on it.
    temporary: bool = False
    #: Lines as JSON instead of words.
    json_lines: bool = False
    #: Seconds that the parts of a level get from SIGTERM to SIGKILL.
    stop_grace: float = 15.0
    #: Seconds that a part with a socket gets to open it.
    start_grace: float = 20.0
    #: Seconds that the nursery gets to be ready. Starting all parts by themselves instead would
    #: only make a busy machine busier.
    nursery_grace: float = 60.0
    #: Seconds that the nursery gets to fork; it does nothing else once it is ready.
    fork_grace: float = 10.0
    #: Seconds after which a part has shown that its configuration is right.
    proof: float = 5.0

    def dumps(self) -> str:
        return json.dumps({**self._asdict(), "parts": [part._asdict() for part in self.parts]})


def loads(text: str) -> Plan:
    """The plan that `Plan.dumps` wrote."""
    raw = json.loads(text)
    parts = tuple(Part(**{**part, "command": tuple(part["command"])}) for part in raw.pop("parts"))
    return Plan(parts=parts, **raw)
