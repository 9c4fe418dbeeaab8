"""W3C Trace Context, version 00: which request all that happens belongs to.

Source: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

#: The header's name in HTTP, and the variable's in an environment.
HEADER, VARIABLE = "traceparent", "TRACEPARENT"
#: Nothing of another size is looked at; a later version may be longer.
MAX_LENGTH = 512
#: Bit of the flags: whoever began the trace keeps it.
SAMPLED = 0x01

_FORM = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<rest>-.*)?",
    re.ASCII,
)
_NONE_YET = "ff"

#: So many random bytes.
Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Trace:
    """A place in a trace."""

    trace_id: str
    #: Of the step that this place is.
    span_id: str
    flags: int = SAMPLED

    @property
    def header(self) -> str:
        """As it is handed on."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def child(self, random: Random) -> Trace:
        """A step within this one."""
        return replace(self, span_id=_id(random, 8))


def new(random: Random) -> Trace:
    """The first step of a trace of its own."""
    return Trace(_id(random, 16), _id(random, 8))


def parse(header: str | None) -> Trace | None:
    """What somebody handed on; None when it is nothing valid, and a new trace is to begin."""
    if header is None or len(header) > MAX_LENGTH:
        return None
    found = _FORM.fullmatch(header.strip(" \t"))
    if found is None or found["version"] == _NONE_YET:
        return None
    if found["version"] == "00" and found["rest"]:
        return None
    if not int(found["trace"], 16) or not int(found["span"], 16):
        return None
    # Flags that this version does not know are not handed on.
    return Trace(found["trace"], found["span"], int(found["flags"], 16) & SAMPLED)


def _id(random: Random, size: int) -> str:
    made = bytes(size)
    # All zeros mean that there is none.
    while not any(made):
        made = random(size)
    return made.hex()
