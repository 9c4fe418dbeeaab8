"""What a handler sees of its run, and what it may answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog

from sluice_core.adapters import events
from sluice_core.adapters.db import claims, collections, liveness, runs, tallies
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.errors import (
    ChildLostError,
    HandBackError,
    StoreAwayError,
)
from sluice_core.domain.gaps import Gap
from sluice_core.domain.job import Artifact, Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.limits import time_limits
from sluice_core.domain.paths import RunId
from sluice_core.domain.progress import Durable, ProgressGate
from sluice_core.domain.tallies import Tally
from sluice_core.runtime.children import ChildResult, EndReason, error_for, is_alive
from sluice_core.runtime.children.group import kill_group
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.publisher import publish_now

log = structlog.get_logger(__name__)

#: Seconds between tries to reach a database that is away.
STORE_PAUSE = 0.5
#: Seconds that a stopping process still tries: less than a drain leaves for handing back.
STORE_LAST_PATIENCE = 2.0

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Advance:
    """The stage is done; the next one is to run."""

    to: Actor
    #: Columns of `jobs` that this stage learned, e.g. `plan`, `title`.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """The files are in storage under keys of this run."""

    files: Sequence[Artifact]
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: What the media is kept without.
    gaps: Sequence[Gap] = ()


@dataclass(frozen=True, slots=True)
class Expanded:
    """The link was a collection, and its list was read to its end."""

    fields: Mapping[str, Any] = field(default_factory=dict)


Outcome = Advance | Finished | Expanded


class Run:
    """What a handler sees of its run; writes raise `StaleRunError` once the job is not ours."""

    def __init__(self, deps: StageDeps, claim: claims.Claim, *, folder: str | None = None) -> None:
        """`folder` names the scratch folder, where it is not the one of the job's own run."""
        self.deps = deps
        self.claim = claim
        self.job = claim.job
        self.id = RunId(claim.job.id, deps.stage, claim.job.epoch)
        self.scratch = deps.settings.store.scratch_dir / (folder or self.id.folder)
        self._gate = ProgressGate()
        self._durable = Durable(deps.stage)
        self._child: tuple[int, int] | None = None
        #: Bytes fetched so far, and of these fetched before; set by a handler that fetches.
        self.traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._counted = (0, 0)
        self._observed: list[Tally] = []
        limits = time_limits(
            deps.limits.soft_time_limit,
            deps.limits.hard_time_limit,
            per_second=deps.limits.time_limit_per_second,
            duration=claim.job.duration,
        )
        now = time.monotonic()
        self._soft_at = now + (limits.soft or float("inf"))
        self.hard_at = now + (limits.hard or float("inf"))

    def stop(self) -> str | None:
        """Why to stop now, as `EndReason`; None to go on. Cheap; never waits."""
        reason = self.deps.running.reason(self.claim.attempt_id)
        if reason is None and self.deps.drain.is_set():
            return EndReason.DRAINED
        if reason is None and time.monotonic() > self._soft_at:
            return EndReason.SOFT_LIMIT
        return reason

    def hard_left(self) -> float | None:
        """Seconds until the hard limit: the deadline of a child that starts now."""
        left = self.hard_at - time.monotonic()
        return None if left == float("inf") else max(0.0, left)

    def raise_for(self, reason: str) -> None:
        """Turn a child's `EndReason` into the exception that ends this run."""
        error = error_for(reason)
        if error is not None:
            raise error

    def check(self) -> None:
        """Raise when the run must stop; for handlers between their steps."""
        reason = self.stop()
        if reason is not None:
            self.raise_for(reason)

    def progress(self, progress: Progress) -> None:
        """Report how far the stage is; written and told only as often as is worth it."""
        admitted = self._gate.admit(progress, time.monotonic())
        if admitted is None:
            return
        happened = self.tallies()
        try:
            with write(self.deps.engine) as connection:
                job = runs.write_progress(
                    connection, self.claim.job, admitted, now=self.deps.clock()
                )
                tallies.note(connection, happened)
                if self._durable.is_news(admitted):
                    liveness.mark_progressed(connection, self.claim.attempt_id)
        except StoreAwayError:
            # Figures are not worth a wait: bytes keep flowing while the database is away.
            self.deps.running.note_store(away=True)
            return
        tell(self.deps, job, "progress")

    def put_away(self) -> None:
        """Note that the next run goes on from what this one stored: its loss blames nobody."""
        try:
            with write(self.deps.engine) as connection:
                liveness.mark_progressed(connection, self.claim.attempt_id)
        except StoreAwayError:
            self.deps.running.note_store(away=True)

    def observe(self, metric: str, value: float) -> None:
        """Count an observation with the end of this run."""
        self._observed.append(Tally(metric, {}, value))

    def tallies(self) -> list[Tally]:
        """What happened since this was last asked.

        To be asked before it is stored: where nobody can tell whether that went through, too little
        is counted, and nothing twice.
        """
        before, self._counted = self._counted, self.traffic()
        observed, self._observed = self._observed, []
        names = ("download_bytes_total", "download_refetched_bytes_total")
        return observed + [
            Tally(name, {}, now - then)
            for name, now, then in zip(names, self._counted, before, strict=True)
            if now > then
        ]

    def describe(self, **fields: Any) -> None:
        """Store what was learned so far, e.g. the title."""
        now = self.deps.clock()
        self.job = stored(
            self.deps, lambda connection: runs.describe(connection, self.claim.job, fields, now=now)
        )
        tell(self.deps, self.job, "job")

    def add_children(self, entries: Sequence[dict[str, Any]]) -> None:
        """Store entries of a collection as they are found; see `collections.add_children`."""
        now = self.deps.clock()

        def add(connection: sa.Connection) -> list[OutboxRow]:
            found = collections.add_children(connection, self.claim, entries, now=now)
            if found:
                liveness.mark_progressed(connection, self.claim.attempt_id)
            return found

        rows = stored(self.deps, add)
        publish_now(self.deps.broker, rows, now=now)
        tell(self.deps, self.job, "job")

    def kill_child(self) -> None:
        """End the media child by force, from any thread, if there is one."""
        child = self._child
        if child is not None and is_alive(*child):
            kill_group(child[0])

    def lost_child(self, result: ChildResult) -> ChildLostError:
        """What to raise for a child that somebody else ended.

        Raises:
            SluiceError, CanceledRunError, StaleRunError, HandBackError: it was ours to end, or it
                would have been a moment later.

        """
        self.check()
        if self.deps.ending.is_set():
            # Whoever ends all processes of a unit or a container at once means no single job.
            raise HandBackError(EndReason.DRAINED)
        return ChildLostError(f"its child was ended from outside, {result.how}")

    def on_child(self, pid: int, started: int) -> None:
        """Remember the media child, so that a later run can prove it gone."""
        self._child = (pid, started)
        try:
            with write(self.deps.engine) as connection:
                liveness.record_child(connection, self.claim.attempt_id, pid, started)
        except StoreAwayError:
            # The lock that the child holds proves the same; its output must not wait for this.
            self.deps.running.note_store(away=True)


def stored(
    deps: StageDeps,
    work: Callable[[sa.Connection], _R],
    *,
    begin: Callable[[sa.Engine], AbstractContextManager[sa.Connection]] = write,
) -> _R:
    """Run a transaction; while the database is away wait for it, unless this process stops.

    Args:
        deps: of this process.
        work: what to do in it; may be called several times.
        begin: `read` where nothing is written.

    Raises:
        StoreAwayError: the process stops, and the database was still away a moment later.

    """
    left = STORE_LAST_PATIENCE
    while True:
        try:
            with begin(deps.engine) as connection:
                return work(connection)
        except StoreAwayError:
            deps.running.note_store(away=True)
            if deps.drain.wait(STORE_PAUSE):
                if left <= 0:
                    raise
                left -= STORE_PAUSE
                time.sleep(STORE_PAUSE)


def tell(deps: StageDeps, job: Job, kind: str) -> None:
    """Tell whoever watches; a signal that is lost is made good from the database."""
    deps.teller.tell(events.event_of(job, kind))
