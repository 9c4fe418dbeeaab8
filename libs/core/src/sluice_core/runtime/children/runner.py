"""Run a child to its end: lines, deadlines, stalls, cancel, and nobody left of its group."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children.group import kill_group
from sluice_core.runtime.children.launch import Child, Ended, Spec, Started, launch
from sluice_core.runtime.children.lines import MAX_LINE, LineSplitter, Tail
from sluice_core.runtime.children.proof import is_alive
from sluice_core.runtime.children.said import Said
from sluice_core.runtime.children.spec import ChildResult, EndReason

if TYPE_CHECKING:
    from collections.abc import Callable

#: How often `stop` and the progress marker are looked at, in seconds.
POLL = 0.1

#: From SIGTERM to SIGKILL, in seconds; short enough that a cancel is through within 2 s.
GRACE = 1.0

#: A child that has not reported itself after this long, in seconds, will not. It may have to wait
#: for a new fork server, whose start took more than 30 s on a node that was short of cores.
START_TIMEOUT = 120.0

#: From SIGKILL to giving up on a process that the kernel can't end, in seconds.
_KILL_TIMEOUT = 15.0

_CHUNK = 64 * 1024


def run(
    spec: Spec,
    *,
    on_line: Callable[[str], None],
    deadline_s: float | None,
    stop: Callable[[], str | None] = lambda: None,
    stall_s: float | None = None,
    marker: Callable[[], object] | None = None,
    on_start: Callable[[int, int], None] = lambda _pid, _start_time: None,
    grace_s: float = GRACE,
    max_line: int = MAX_LINE,
) -> ChildResult:
    """Start a child, feed its lines to `on_line`, and return when no process of its group is left.

    All callbacks are called by the calling thread; an exception of theirs ends the child by force
    and is passed on. Cancel takes `POLL` + `grace_s` at most, in every state of the child.

    Args:
        spec: what to run.
        on_line: one line of stdout, without its end.
        deadline_s: seconds until the end by `deadline`; None for work without one.
        stop: asked every `POLL` seconds, and once more after a bad end; must not wait. A word ends
            the child and becomes the result's reason, see `EndReason`, whatever its exit status.
        stall_s: seconds without progress until the end by `stalled`. Counted from the child's start
            in the runner's own awake time, so that a suspended worker blames nobody.
        marker: a value that changes with progress; without it each line of stdout is progress.
        on_start: process group id (= process id) and start time, for `proof.is_alive`.
        grace_s: from SIGTERM to SIGKILL.
        max_line: bytes; longer lines are dropped and counted.

    Raises:
        BlockingIOError: another writer holds the scratch folder's lock.
        SluiceError: `overloaded`, the machine can't start the child now; `internal`, it can't be
            started at all, or not be ended.

    """
    active = _Run(
        launch(spec),
        on_line=on_line,
        on_start=on_start,
        stop=stop,
        deadline=None if deadline_s is None else time.monotonic() + deadline_s,
        stall=_StallWatch(stall_s, marker),
        grace=grace_s,
        max_line=max_line,
    )
    try:
        return active.to_the_end()
    finally:
        active.close()


class _StallWatch:
    """Sums up the time without progress."""

    def __init__(self, limit: float | None, marker: Callable[[], object] | None) -> None:
        self._limit = limit
        self._marker = marker or self._count
        self.lines = 0
        self._last: object = None
        self._quiet = 0.0
        self._seen_at = time.monotonic()

    def _count(self) -> object:
        return self.lines

    def is_stalled(self, now: float) -> bool:
        if self._limit is None:
            return False
        # A gap much longer than the poll means that this process did not run either.
        step = min(now - self._seen_at, 10 * POLL)
        self._seen_at = now
        value = self._marker()
        self._quiet = 0.0 if value != self._last else self._quiet + step
        self._last = value
        return self._quiet >= self._limit


class _Run:
    def __init__(
        self,
        child: Child,
        *,
        on_line: Callable[[str], None],
        on_start: Callable[[int, int], None],
        stop: Callable[[], str | None],
        deadline: float | None,
        stall: _StallWatch,
        grace: float,
        max_line: int,
    ) -> None:
        self._child = child
        self._on_line = on_line
        self._on_start = on_start
        self._stop = stop
        self._deadline = deadline
        self._stall = stall
        self._grace = grace
        self._lines: deque[str] = deque()
        self._splitter = LineSplitter(max_line)
        self._tail = Tail()
        self._said = Said()
        self._started: Started | None = None
        self._ended: Ended | None = None
        self._reason: str | None = None
        self._ending_since = 0.0
        self._killed = False
        self._born = self._next_tick = time.monotonic()
        self._selector = selectors.DefaultSelector()
        for fd in (child.stdout, child.stderr, child.news):
            if fd is not None:
                self._selector.register(fd, selectors.EVENT_READ)

    def to_the_end(self) -> ChildResult:
        while self._ended is None:
            self._read()
            self._learn()
            self._deliver()
            self._tick()
        self._drain()
        if self._reason is None and self._ended.exit_code != 0:
            # A signal to all of a container's processes ends the child before the next look.
            self._reason = self._stop()
        return ChildResult(
            reason=self._reason or EndReason.EXITED,
            exit_code=self._ended.exit_code,
            signal=self._ended.signal,
            stderr_tail=self._tail.text(),
            lines_dropped=self._splitter.dropped,
        )

    def _read(self) -> None:
        # While lines wait to be delivered nothing is read: the child waits, memory does not grow.
        wait = 0.0 if self._lines else max(0.0, self._next_tick - time.monotonic())
        for key, _ in self._selector.select(wait):
            if key.fd == self._child.stderr:
                self._read_stderr()
            elif key.fd == self._child.stdout and not self._lines:
                self._read_stdout()

    def _read_stdout(self) -> bool:
        data = _read_some(self._child.stdout)
        if data is None:
            return False
        if not data:
            self._forget(self._child.stdout)
            self._lines.extend(self._splitter.close())
            return False
        self._lines.extend(self._splitter.feed(data))
        return True

    def _read_stderr(self) -> bool:
        data = _read_some(self._child.stderr)
        if data is None:
            return False
        if not data:
            self._forget(self._child.stderr)
            return False
        self._tail.feed(data)
        self._said.feed(data)
        return True

    def _forget(self, fd: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(fd)

    def _learn(self) -> None:
        started, self._ended = self._child.poll()
        if started is not None and self._started is None:
            self._started = started
            self._on_start(started.pid, started.start_time)

    def _deliver(self) -> None:
        while self._lines and time.monotonic() < self._next_tick:
            line = self._lines.popleft()
            self._stall.lines += 1
            self._on_line(line)

    def _tick(self) -> None:
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + POLL
        if self._reason is None:
            self._reason = self._why_end(now)
            if self._reason is not None:
                self._ending_since = now
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)
        elif not self._killed and now - self._ending_since >= self._grace:
            self._kill()
        elif self._killed and now - self._ending_since >= self._grace + _KILL_TIMEOUT:
            raise SluiceError("a child process can't be ended", code="internal")

    def _why_end(self, now: float) -> str | None:
        reason = self._stop()
        if reason is not None:
            return reason
        if self._deadline is not None and now >= self._deadline:
            return EndReason.DEADLINE
        if self._started is None and now - self._born >= START_TIMEOUT:
            if self._child.server is not None:
                # Somebody may have stopped it; it would hold up everybody's next child as well.
                self._child.server.wake()
            raise SluiceError("a child process did not start in time", code="overloaded")
        # Before its start the child is not to blame: a server may still be making ready.
        if self._started is not None and self._stall.is_stalled(now):
            return EndReason.STALLED
        return None

    def _is_alive(self) -> bool:
        return self._started is not None and is_alive(self._started.pid, self._started.start_time)

    def _signal(self, signum: int) -> None:
        if self._started is not None and self._is_alive():
            kill_group(self._started.pid, signum)

    def _kill(self) -> None:
        self._killed = True
        self._signal(signal.SIGKILL)
        if self._started is None:
            # The status pipe closes with the runner; a child that starts after all ends by that.
            self._ended = Ended(exit_code=None, signal=signal.SIGKILL)

    def _drain(self) -> None:
        """Deliver what the child wrote before its end, unless the end was or becomes ours."""
        self._end_survivors()
        while self._read_stderr():
            pass
        self._said.close()
        while self._reason is None and self._read_stdout():
            self._deliver_all()
        self._lines.extend(self._splitter.close())
        self._deliver_all()

    def _deliver_all(self) -> None:
        while self._lines and self._reason is None:
            self._deliver()
            self._tick()

    def _end_survivors(self) -> None:
        """Whoever is left of the group; only after the loss of a fork server is there anybody."""
        give_up = time.monotonic() + _KILL_TIMEOUT
        while self._is_alive():
            self._signal(signal.SIGKILL)
            if time.monotonic() >= give_up:
                raise SluiceError("a child process can't be ended", code="internal")
            time.sleep(0.01)

    def close(self) -> None:
        """End what still runs, whatever happened, and free the descriptors."""
        try:
            if self._ended is None:
                self._end_by_force()
        finally:
            self._selector.close()
            self._child.close()

    def _end_by_force(self) -> None:
        give_up = time.monotonic() + _KILL_TIMEOUT
        self._started, self._ended = self._child.poll()
        # A forked child without a start yet ends when it finds the status pipe closed.
        while self._started is not None and self._ended is None and time.monotonic() < give_up:
            self._signal(signal.SIGKILL)
            time.sleep(0.01)
            _, self._ended = self._child.poll()


def _read_some(fd: int) -> bytes | None:
    """Bytes, none at the end, None when there is nothing to read now."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
