"""What an API server does when it is not well, on purpose."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Fault:
    """An answer instead of the right one."""

    #: `get`, `list`, `create`, `update`, `patch`, `delete`; empty: any.
    verb: str = ""
    #: E.g. `deployments/scale`; empty: any.
    resource: str = ""
    #: HTTP status; 0 closes the connection without a word.
    status: int = 500
    #: Seconds, as the header Retry-After.
    retry_after: int | None = None
    #: Seconds before the answer.
    delay: float = 0.0
    #: How often; None: until it is taken away.
    times: int | None = 1
    #: How often it happened.
    hits: int = 0

    def fits(self, verb: str, resource: str) -> bool:
        return self.verb in {"", verb} and self.resource in {"", resource}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a Role allows."""

    #: `""` is the core group.
    groups: Sequence[str]
    resources: Sequence[str]
    verbs: Sequence[str]
    #: Empty: every name.
    names: Sequence[str] = ()

    def allows(self, group: str, resource: str, verb: str, name: str) -> bool:
        # Nothing can be created by name: it has none yet.
        named = not self.names or (name in self.names and verb != "create")
        return group in self.groups and resource in self.resources and verb in self.verbs and named


class Faults:
    """The faults that wait to happen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def next(self, verb: str, resource: str) -> Fault | None:
        """The fault that this request meets, if any."""
        with self._lock:
            for fault in self._waiting:
                if fault.fits(verb, resource) and (fault.times is None or fault.hits < fault.times):
                    fault.hits += 1
                    return fault
        return None
