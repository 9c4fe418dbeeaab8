"""Faults on demand at named places, for tests that break things on purpose.

`SLUICE_FAILPOINTS=run.before_commit=kill*2,run.claimed=sleep:3` kills the process at the first two
passes through `run.before_commit`, and waits 3 s at every pass through `run.claimed`. Counting goes
through `SLUICE_FAILPOINTS_LOG`, a file that several processes and their successors share.
`kill*5/20` spreads the five over a long run: only every 20th pass acts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sluice_core.domain.errors import ConfigError, SluiceError

#: Every place that exists, with what is special about it.
NAMES = {
    "api.after_commit": "the job is stored, nothing is published, no answer is given",
    "api.after_publish": "the message is published, no answer is given",
    "run.delivered": "the message was fetched from the broker, nothing is claimed",
    "run.claimed": "the claim is stored, nothing else has happened",
    "download.mid_fetch": "bytes are arriving",
    "download.mid_piece": "a piece of a partial file is in storage, nothing points at it",
    "transcode.mid_segment": "the first pictures of a segment are encoded",
    "help.mid_segment": "as before, in a slot that helps",
    "run.before_commit": "the files are in storage, no row points at them",
    "run.after_commit": "the outcome is stored, what follows is not published",
    "run.before_ack": "all is done, the broker does not know",
    "run.hand_back": "the worker drains, the job is not yet given back",
    "settle.counted": "the children are counted, the parent is not written",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    action: str
    seconds: float
    #: Passes that act; None is all.
    times: int | None
    #: Only every so many passes act.
    every: int = 1

    @property
    def counts(self) -> bool:
        """Whether passes have to be counted to know which of them act."""
        return self.times is not None or self.every > 1

    def acts_at(self, number: int) -> bool:
        """Whether the pass of this number, from 1, acts."""
        turn, rest = divmod(number, self.every)
        return rest == 0 and (self.times is None or turn <= self.times)


class Failpoints:
    """Does nothing unless told to.

    Args:
        spec: as in the module's words; empty in production.
        log: file to which each pass appends its name; needed by limited rules.

    Raises:
        ConfigError: an unknown name or action, or a limit without a log to count in.

    """

    def __init__(self, spec: str = "", log: Path | None = None) -> None:
        self._log = log
        self._rules = {}
        for part in filter(None, (p.strip() for p in spec.split(","))):
            name, _, action = part.partition("=")
            if name not in NAMES:
                raise ConfigError(f"SLUICE_FAILPOINTS names {name!r}, which does not exist.")
            self._rules[name] = _parse(action)
        if log is None and any(rule.counts for rule in self._rules.values()):
            raise ConfigError("SLUICE_FAILPOINTS counts passes: SLUICE_FAILPOINTS_LOG is missing.")

    def hit(self, name: str) -> None:
        """Pass a named place."""
        rule = self._rules.get(name)
        if rule is None:
            return
        if self._log is not None and not rule.acts_at(self._count(name)):
            return
        _act(rule, name)

    def _count(self, name: str) -> int:
        """Append this pass and count all so far, over every process."""
        assert self._log is not None  # noqa: S101  # narrowed by the caller
        line = f"{name}\n".encode()
        descriptor = os.open(self._log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # Each pass must get a number of its own.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, line)
            return self._log.read_bytes().count(line)
        finally:
            os.close(descriptor)


def _parse(text: str) -> _Rule:
    text, _, every = text.partition("/")
    action, _, times = text.partition("*")
    action, _, seconds = action.partition(":")
    if action not in {"kill", "stop", "sleep", "raise", "log"}:
        raise ConfigError(f"SLUICE_FAILPOINTS asks for {action!r}, which is no action.")
    return _Rule(action, float(seconds or 0), int(times) if times else None, int(every or 1))


def _act(rule: _Rule, name: str) -> None:
    if rule.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif rule.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif rule.action == "sleep":
        time.sleep(rule.seconds)
    elif rule.action == "raise":
        raise SluiceError(f"failpoint {name}")
