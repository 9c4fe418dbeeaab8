"""What a response does wrong on purpose: read from query parameters and from control rules."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Distinct counters and rules kept; a test site needs few, a runaway client must not fill memory.
MAX_COUNTERS = 10_000
MAX_RULES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How one response departs from a healthy one. Sizes in bytes of the body, times in seconds."""

    #: Bytes per second on this connection.
    throttle: float | None = None
    #: Silence before the status line.
    latency: float = 0.0
    #: Time over which the headers trickle, byte by byte.
    slow_headers: float = 0.0
    #: Answer with this status and a small HTML body.
    fail: int | None = None
    #: Value of a Retry-After header: seconds or an HTTP date.
    retry_after: str | None = None
    #: Go silent after so many bytes, connection open.
    stall: int | None = None
    #: Reset the connection (RST) after so many bytes.
    reset: int | None = None
    #: Close after so many bytes although Content-Length says more.
    short: int | None = None
    #: Close where so many bytes of the whole body are out, whatever part of it is asked for; below
    #: 1 it is a share.
    ends: float | None = None
    #: "exact" (Content-Length), "chunked" or "close" (delimited by the end of the connection);
    #: "wrong" and "huge" as that, beside a Content-Length that is no number, or far too large.
    length: str = "exact"
    #: Whether a Range is honoured; if not, it is answered by 200 and the whole body.
    ranges: bool = True
    #: From the n-th request on, other content under the same address (new ETag and size).
    change: int | None = None
    #: Location to redirect to, and with which status.
    redirect: str | None = None
    status: int = 302
    #: An HTML page in place of the media, with status 200.
    html: bool = False
    #: Content-Type sent in place of the right one.
    content_type: str | None = None
    #: The faults hold for `times` requests after the first `skip`, then the site is healthy.
    times: int | None = None
    skip: int = 0
    #: Name of the counter behind `times`, `skip` and `change`; the path when empty.
    counter: str = ""

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> Behaviour:
        """Read parameters; the names are in the package's docstring.

        Raises:
            ValueError: a value has the wrong form.
        """

        def number(name: str) -> int | None:
            return int(params[name]) if name in params else None

        length = params.get("length", "exact")
        if length not in {"exact", "chunked", "close", "wrong", "huge"}:
            raise ValueError("length is exact, chunked, close, wrong or huge")
        throttle = float(params["throttle"]) if "throttle" in params else None
        if throttle is not None and throttle <= 0:
            raise ValueError("throttle is above zero")
        return cls(
            throttle=throttle,
            latency=float(params.get("latency", "0")),
            slow_headers=float(params.get("slow_headers", "0")),
            fail=number("fail"),
            retry_after=params.get("retry_after"),
            stall=number("stall"),
            reset=number("reset"),
            short=number("short"),
            ends=float(params["ends"]) if "ends" in params else None,
            length=length,
            ranges=params.get("ranges", "yes") not in {"no", "0", "false"},
            change=number("change"),
            redirect=params.get("redirect"),
            status=int(params.get("status", "302")),
            html=params.get("html", "0") in {"1", "yes", "true"},
            content_type=params.get("type"),
            times=number("times"),
            skip=int(params.get("skip", "0")),
            counter=params.get("id", ""),
        )

    @property
    def counted(self) -> bool:
        """Whether the number of the request matters."""
        return self.times is not None or self.skip > 0 or self.change is not None

    def at(self, request: int) -> Behaviour:
        """What holds for the `request`-th request (from 1)."""
        over = self.times is not None and request > self.skip + self.times
        if over or request <= self.skip:
            return Behaviour()
        return self

    def cut(self, *, start: int = 0, size: int | None = None) -> int | None:
        """Bytes after which something goes wrong, of a body of `size` sent from `start` on."""
        cuts = [cut for cut in (self.stall, self.reset, self.short) if cut is not None]
        if self.ends is not None:
            share = self.ends < 1 and size is not None
            cuts.append(max(0, int(self.ends * size if share and size else self.ends) - start))
        return min(cuts, default=None)


class Controls:
    """Rules by path pattern, and the counters behind `times`; shared by all connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: dict[str, dict[str, str]] = {}
        self._counters: dict[str, int] = {}

    def set(self, pattern: str, params: Mapping[str, str]) -> None:
        """Give every path that matches the shell pattern these parameters; none takes it back.

        Raises:
            ValueError: a parameter has the wrong form, or there are too many rules.
        """
        Behaviour.parse(params)
        with self._lock:
            self._rules.pop(pattern, None)
            if len(self._rules) >= MAX_RULES:
                raise ValueError("too many control rules")
            if params:
                self._rules[pattern] = dict(params)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()
            self._counters.clear()

    def params(self, path: str, query: Mapping[str, str]) -> dict[str, str]:
        """Parameters for a request: rules in the order they were set, the query on top."""
        merged: dict[str, str] = {}
        with self._lock:
            for pattern, params in self._rules.items():
                if fnmatchcase(path, pattern):
                    merged |= params
        return merged | dict(query)

    def count(self, name: str) -> int:
        """The number of this request under `name`, from 1."""
        with self._lock:
            if name not in self._counters and len(self._counters) >= MAX_COUNTERS:
                self._counters.clear()
            self._counters[name] = self._counters.get(name, 0) + 1
            return self._counters[name]
