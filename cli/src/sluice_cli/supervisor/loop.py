"""The supervisor itself: one thread, woken by signals and due times."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TextIO

from sluice_cli.supervisor import probe, processes
from sluice_cli.supervisor.backoff import Backoff
from sluice_cli.supervisor.nursery import Nursery, Process
from sluice_cli.supervisor.plan import Part, Plan

#: A part that ends so at its start has been told something that no restart can mend.
WRONG_CONFIGURATION = 2
#: Seconds between two questions whether the system is ready.
PROBE_EVERY = 0.2
#: Seconds without readiness after which that is worth a line.
SLOW_START = 60.0
#: Seconds for orphans to be gone after SIGKILL.
ORPHAN_GRACE = 5.0
#: Ends of the nursery in a row after which parts are started without it.
HOPELESS = 2


class Child:
    """One part: its process when it runs, its due time when it does not."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.process: Process | None = None
        self.since = 0.0
        #: Monotonic time of the next start; None: not yet ordered.
        self.due: float | None = None
        self.backoff = Backoff()
        #: Whether it ever ran for long: then what it misses now is a store, which may come back.
        self.worked = False


class Supervisor:
    """Runs one plan to its end."""

    def __init__(self, plan: Plan, *, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._children = [Child(part) for part in plan.parts]
        self._nursery = Nursery(plan.fork_grace)
        self._levels = sorted({part.level for part in plan.parts})
        self._signals = 0
        self._exit_code: int | None = None
        self._ready = plan.port == 0
        #: When to say that the start takes long; None once said.
        self._slow_at: float | None = None
        self._waker_out, self._waker_in = os.pipe()

    def run(self) -> int:
        """Start, keep alive, stop. Returns the exit code: 0 when asked to end, 2 as a part said."""
        self._listen()
        processes.adopt_orphans()
        try:
            self._start()
            self._keep()
        finally:
            self._stop()
            if self._plan.state_file:
                probe.remove_state(self._plan.state_file)
        return self._exit_code or 0

    # -- signals ---------------------------------------------------------------------------------

    def _listen(self) -> None:
        os.set_blocking(self._waker_in, False)
        os.set_blocking(self._waker_out, False)
        signal.set_wakeup_fd(self._waker_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_end)
        # Under nohup a lost terminal is no reason to end.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._asked_to_end)

    def _asked_to_end(self, *_: object) -> None:
        self._signals += 1

    @property
    def _ending(self) -> bool:
        return self._signals > 0 or self._exit_code is not None

    def _sleep(self, seconds: float) -> None:
        """Until a signal comes, or the nursery is ready; at most so long."""
        news = [self._waker_out, *(line.fileno() for line in self._nursery.waits())]
        if self._waker_out in select.select(news, [], [], max(0.0, seconds))[0]:
            os.read(self._waker_out, 4096)
        self._nursery.look()

    # -- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._plan.state_file:
            plan = self._plan
            probe.write_state(plan.state_file, url=plan.url, temporary=plan.temporary)
        for level in self._levels:
            for child in self._at(level):
                child.due = time.monotonic()
            self._launch_due()
            for child in self._at(level):
                self._await_socket(child)

    def _await_socket(self, child: Child) -> None:
        path = child.part.socket
        deadline = time.monotonic() + self._plan.start_grace
        while path is not None and not self._ending and not probe.accepts(path):
            if time.monotonic() > deadline or not self._alive(child):
                log = child.part.log or "its lines above"
                self._give_up(f"{child.part.name} did not start; see {log}")
                return
            self._sleep(0.02)

    def _alive(self, child: Child) -> bool:
        return child.process is not None and child.process.poll() is None

    def _launch(self, child: Child) -> None:
        child.due = None
        child.since = time.monotonic()
        try:
            child.process = self._process(child.part)
        except (OSError, subprocess.SubprocessError) as exc:
            # A program may be missing for a moment only, while it is being upgraded.
            self._plan_restart(child, code=1, why=f"could not be started: {exc}")

    def _process(self, part: Part) -> Process:
        if part.nursery:
            return self._nursery.start(part.command)
        if not part.forked or not self._nursery.ready:
            return processes.start(part.command)
        try:
            return self._nursery.fork(part.name)
        except OSError:
            self._replace_nursery()
            raise

    def _replace_nursery(self) -> None:
        """End what can't fork: its end is noticed, and its successor started, as of any part."""
        self._nursery.close()
        for child in self._children:
            if child.part.nursery and child.process:
                processes.kill_group(child.process.pid)

    def _start_at(self, child: Child) -> float | None:
        """Monotonic time of its next start; a forked part waits for a nursery on its way."""
        if child.due is None or not child.part.forked or self._nursery.ready:
            return child.due
        on_its_way = [
            other.since + self._plan.nursery_grace
            for other in self._children
            if other.part.nursery and other.backoff.failures < HOPELESS
        ]
        return max(child.due, *on_its_way) if on_its_way else child.due

    # -- keep alive ------------------------------------------------------------------------------

    def _keep(self) -> None:
        self._slow_at = time.monotonic() + SLOW_START
        while not self._ending:
            self._reap()
            self._launch_due()
            self._ask_ready()
            if not self._ending:
                self._sleep(self._next_due())

    def _reap(self) -> None:
        """Notice who ended; on the way, end what they left behind."""
        for child in self._children:
            process = child.process
            if process is None or process.poll() is None:
                continue
            processes.kill_group(process.pid)
            child.process = None
            if child.part.nursery:
                self._nursery.close()
            self._ended(child, process.returncode or 0)
        processes.kill_orphans(self._pids())

    def _ended(self, child: Child, code: int) -> None:
        if self._ending:
            return
        # What is wrong in a configuration shows at the first start; later, a store is away.
        worked = time.monotonic() - child.since >= self._plan.proof
        child.worked = child.worked or worked or code != WRONG_CONFIGURATION
        if not child.worked:
            self._give_up(f"{child.part.name} can't work with this configuration; stopping all")
            return
        self._plan_restart(child, code=code, why=f"ended ({processes.reason(code)})")

    def _plan_restart(self, child: Child, *, code: int, why: str) -> None:
        now = time.monotonic()
        child.backoff, wait = child.backoff.ended(code=code, uptime=now - child.since)
        child.due = now + wait
        self._say(f"{child.part.name} {why}; next start in {wait:g} s")

    def _launch_due(self) -> None:
        for child in self._children:
            at = self._start_at(child)
            if at is not None and at <= time.monotonic() and not self._ending:
                self._launch(child)

    def _next_due(self) -> float:
        starts = [self._start_at(child) for child in self._children]
        due = [at for at in starts if at is not None]
        # Nothing due: an hour stands for "until a signal".
        wait = min(due) - time.monotonic() if due else 3600.0
        return wait if self._ready else min(wait, PROBE_EVERY)

    def _ask_ready(self) -> None:
        if self._ready or self._ending:
            return
        if probe.is_ready(self._plan.host, self._plan.port):
            self._ready = True
            _write(sys.stdout, f"Sluice is ready: {self._plan.url}")
        elif self._slow_at is not None and time.monotonic() > self._slow_at:
            self._slow_at = None
            self._say(f"not ready after {SLOW_START:g} s; still trying")

    def _give_up(self, words: str) -> None:
        self._say(words)
        self._exit_code = WRONG_CONFIGURATION

    # -- stop ------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Highest level first, each asked, then forced; a second signal forces all at once."""
        # Taken before anyone is asked: whoever sees a part end may send the second one right away.
        patience = self._signals
        for level in reversed(self._levels):
            members = [child for child in reversed(self._at(level)) if child.process]
            for child in members:
                if child.process:
                    processes.terminate(child.process.pid)
            self._await_end(members, patience)
        deadline = time.monotonic() + ORPHAN_GRACE
        while processes.kill_orphans(self._pids()) and time.monotonic() < deadline:
            self._sleep(0.02)

    def _await_end(self, members: list[Child], patience: int) -> None:
        deadline = time.monotonic() + self._plan.stop_grace
        while any(self._alive(child) for child in members):
            if time.monotonic() > deadline or self._signals > patience:
                self._force(members)
                return
            self._sleep(min(0.5, deadline - time.monotonic()))
        for child in members:
            self._bury(child)

    def _force(self, members: list[Child]) -> None:
        for child in members:
            if self._alive(child):
                self._say(f"{child.part.name} did not stop in time; killed")
            self._bury(child)

    def _bury(self, child: Child) -> None:
        if child.process is not None:
            processes.kill_group(child.process.pid)
            child.process.wait()
            child.process = None

    def _at(self, level: int) -> list[Child]:
        return [child for child in self._children if child.part.level == level]

    def _pids(self) -> set[int]:
        return {child.process.pid for child in self._children if child.process is not None}


def speaker(*, json_lines: bool) -> Callable[[str], None]:
    """Lines to standard error, beside those of the parts."""

    def say(words: str) -> None:
        if json_lines:
            words = json.dumps({"process": "supervisor", "event": words})
        _write(sys.stderr, words if json_lines else f"sluice: {words}")

    return say


def _write(stream: TextIO, line: str) -> None:
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except OSError:
        # Nobody reads any more (a closed pipe, a lost terminal): no reason to stop the system.
        return
