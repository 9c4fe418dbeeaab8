"""One run of one stage: claim, handle, and one transaction with the outcome and what follows."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

import redis
import sqlalchemy as sa
import structlog

from sluice_core.adapters import events
from sluice_core.adapters.db import collections, dead_letters, runs, sweeps
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.settings import Settings, StageSettings
from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import (
    BrokerAwayError,
    CanceledRunError,
    HandBackError,
    SluiceError,
    StaleRunError,
    StoreAwayError,
)
from sluice_core.domain.job import Artifact, Job, JobError, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import RunId, final_key, work_key
from sluice_core.domain.progress import ProgressGate
from sluice_core.domain.retry import RetryIn, decide
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.children import EndReason
from sluice_core.runtime.failpoints import Failpoints
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.running import Running

log = structlog.get_logger(__name__)

#: Seconds between tries to reach a database that is away.
STORE_PAUSE = 0.5

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


@dataclass(frozen=True, slots=True)
class Expanded:
    """The link was a collection, and its list was read to its end."""

    fields: Mapping[str, Any] = field(default_factory=dict)


Outcome = Advance | Finished | Expanded


@dataclass(frozen=True, kw_only=True)
class StageDeps:
    """What every run of one process shares."""

    stage: Actor
    settings: Settings
    engine: sa.Engine
    storage: Storage
    broker: SluiceBroker
    #: Client of the `sluice:` keys.
    signals: redis.Redis
    running: Running
    failpoints: Failpoints
    worker_id: str
    #: Set when runs are to hand back.
    drain: Event
    clock: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.Random)

    @property
    def limits(self) -> StageSettings:
        return self.settings.stages[self.stage]


class Run:
    """What a handler sees of its run; writes raise `StaleRunError` once the job is not ours."""

    def __init__(self, deps: StageDeps, claim: runs.Claim) -> None:
        self.deps = deps
        self.claim = claim
        self.job = claim.job
        self.id = RunId(claim.job.id, deps.stage, claim.job.epoch)
        self.scratch = deps.settings.store.scratch_dir / self.id.folder
        self._gate = ProgressGate()
        self._soft_deadline = _soft_deadline(deps.limits)

    def stop(self) -> str | None:
        """Why to stop now, as `EndReason`; None to go on. Cheap; never waits."""
        reason = self.deps.running.reason(self.claim.attempt_id)
        if reason is None and self.deps.drain.is_set():
            return EndReason.DRAINED
        if reason is None and time.monotonic() > self._soft_deadline:
            return EndReason.DEADLINE
        return reason

    def raise_for(self, reason: str) -> None:
        """Turn a child's `EndReason` into the exception that ends this run."""
        if reason == EndReason.CANCELED:
            raise CanceledRunError(self.job.id)
        if reason == EndReason.STALE:
            raise StaleRunError(self.job.id)
        if reason == EndReason.DRAINED:
            raise HandBackError
        if reason == EndReason.STALLED:
            raise SluiceError(code="stalled")
        if reason == EndReason.DEADLINE:
            raise SluiceError("the stage took longer than its time limit", code="timeout")

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
        try:
            with write(self.deps.engine) as connection:
                job = runs.write_progress(
                    connection, self.claim.job, admitted, now=self.deps.clock()
                )
        except StoreAwayError:
            # Figures are not worth a wait: bytes keep flowing while the database is away.
            self.deps.running.note_store(away=True)
            return
        tell(self.deps, job, "progress")

    def describe(self, **fields: Any) -> None:
        """Store what was learned so far, e.g. the title."""
        with write(self.deps.engine) as connection:
            self.job = runs.describe(connection, self.claim.job, fields, now=self.deps.clock())
        tell(self.deps, self.job, "job")

    def add_children(self, entries: Sequence[dict[str, Any]]) -> None:
        """Store entries of a collection as they are found; see `collections.add_children`."""
        now = self.deps.clock()

        def add(connection: sa.Connection) -> list[OutboxRow]:
            return collections.add_children(connection, self.claim, entries, now=now)

        rows = _stored(self.deps, add)
        publish_now(self.deps.broker, rows, now=now)
        tell(self.deps, self.job, "job")

    def on_child(self, pid: int, started: int) -> None:
        """Remember the media child, so that a later run can prove it gone."""
        with write(self.deps.engine) as connection:
            runs.record_child(connection, self.claim.attempt_id, pid, started)


Handler = Callable[[Run], Outcome]


def run_stage(deps: StageDeps, handle: Handler, message: runs.Message) -> None:
    """Claim the message's job and run the stage; every outcome is stored before this returns.

    Raises:
        StoreAwayError: the database went away and this process stops: the message must not be
            acknowledged.

    """
    deps.failpoints.hit("run.delivered")
    now = deps.clock()

    def claim(connection: sa.Connection) -> runs.Claim | None:
        return runs.claim(
            connection, stage=deps.stage, message=message, worker=deps.worker_id, now=now
        )

    won = _stored(deps, claim)
    if won is None:
        _drop(deps, message)
        return
    deps.running.add(won.attempt_id, won.job.id, won.job.epoch)
    try:
        deps.failpoints.hit("run.claimed")
        tell(deps, won.job, "job")
        _run(deps, handle, Run(deps, won))
    finally:
        deps.running.remove(won.attempt_id)
    deps.failpoints.hit("run.before_ack")


def _drop(deps: StageDeps, message: runs.Message) -> None:
    """Late or doubled messages go quietly; one that names no job at all is kept for a person."""

    def look(connection: sa.Connection) -> bool:
        if sweeps.exists(connection, message.job_id):
            return True
        dead_letters.add(
            connection,
            queue=message.queue,
            job_id=message.job_id,
            reason="unknown job",
            payload=f"message {message.id}, epoch {message.epoch}",
            now=deps.clock(),
        )
        return False

    known = _stored(deps, look)
    log.info("message_dropped", job=message.job_id, epoch=message.epoch, known=known)


def _run(deps: StageDeps, handle: Handler, run: Run) -> None:
    started = time.monotonic()
    outcome = "stale"
    keep = False
    try:
        run.scratch.mkdir(parents=True, exist_ok=True)
        result = handle(run)
        deps.failpoints.hit("run.before_commit")
        _store_outcome(deps, run, result)
        outcome = "ok"
    except StaleRunError:
        log.info("run_stale", job=run.job.id, epoch=run.id.epoch)
        _remove_stored(deps, run)
    except HandBackError:
        deps.failpoints.hit("run.hand_back")
        keep = _hand_back(deps, run)
        outcome = "handed_back"
    except StoreAwayError:
        keep = True
        raise
    except Exception as exc:
        if not isinstance(exc, SluiceError):
            log.exception("run_crashed", job=run.job.id)
            exc = SluiceError(f"{type(exc).__name__}: {exc}")  # mapped
        _remove_stored(deps, run)
        keep = _store_failure(deps, run, exc)
        outcome = exc.code
    finally:
        if not keep:
            shutil.rmtree(run.scratch, ignore_errors=True)
    log.info("run_ended", outcome=outcome, seconds=round(time.monotonic() - started, 3))


def _remove_stored(deps: StageDeps, run: Run) -> None:
    """Remove what this run put into storage, and nothing of any other epoch."""
    for prefix in (work_key(run.id, ""), final_key(run.id, "")):
        try:
            for key in list(deps.storage.keys(prefix)):
                deps.storage.delete(key)
        except SluiceError as exc:
            # The job's own sweep comes by later.
            log.warning("remove_failed", prefix=prefix, error=exc.message)


def _store_outcome(deps: StageDeps, run: Run, outcome: Outcome) -> None:
    now = deps.clock()

    def store(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        if isinstance(outcome, Advance):
            job, row = runs.advance(
                connection, run.claim, to=outcome.to, fields=outcome.fields, now=now
            )
            return job, [row]
        if isinstance(outcome, Expanded):
            return runs.expanded(connection, run.claim, fields=outcome.fields, now=now)
        return runs.succeed(
            connection,
            run.claim,
            files=outcome.files,
            fields=outcome.fields,
            expires_at=now + deps.settings.jobs.retention_files,
            now=now,
        )

    _after(deps, *_stored(deps, store), now=now)


def _store_failure(deps: StageDeps, run: Run, exc: SluiceError) -> bool:
    """Decide between another try and the end; True when partial work is worth keeping."""
    now = deps.clock()
    error = JobError(exc.code, exc.error_class.value, exc.message)
    decision = decide(exc, tries=run.claim.job.tries, max_tries=deps.limits.max_tries, rng=deps.rng)
    log.warning("run_failed", code=exc.code, message=exc.message, decision=repr(decision))

    def store(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        if isinstance(decision, RetryIn):
            job, row = runs.retry_later(
                connection, run.claim, error, due_at=now + decision.delay, now=now
            )
            return job, [row]
        keep_until = now + deps.settings.jobs.retention_partial
        return runs.fail(
            connection,
            run.claim,
            error,
            dead=decision.exhausted,
            sweep_at=keep_until,
            now=now,
        )

    try:
        _after(deps, *_stored(deps, store), now=now)
    except StaleRunError:
        return False
    return deps.stage is Actor.DOWNLOAD


def _hand_back(deps: StageDeps, run: Run) -> bool:
    now = deps.clock()

    def store(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        job, row = runs.hand_back(connection, run.claim, now=now)
        return job, [row]

    try:
        _after(deps, *_stored(deps, store), now=now)
    except StaleRunError:
        return False
    return deps.stage is Actor.DOWNLOAD


def _after(deps: StageDeps, job: Job, rows: Sequence[OutboxRow], *, now: float) -> None:
    deps.failpoints.hit("run.after_commit")
    publish_now(deps.broker, rows, now=now)
    tell(deps, job, "job")


def _stored(deps: StageDeps, work: Callable[[sa.Connection], _R]) -> _R:
    """Run a transaction; while the database is away wait for it, unless this process stops."""
    while True:
        try:
            with write(deps.engine) as connection:
                return work(connection)
        except StoreAwayError:
            deps.running.note_store(away=True)
            if deps.drain.wait(STORE_PAUSE):
                raise


def tell(deps: StageDeps, job: Job, kind: str) -> None:
    """Tell whoever watches; a signal that is lost is made good from the database."""
    try:
        events.emit(deps.signals, events.event_of(job, kind))
    except BrokerAwayError as exc:
        log.debug("event_lost", job=job.id, error=str(exc))


def _soft_deadline(limits: StageSettings) -> float:
    if limits.soft_time_limit is None:
        return float("inf")
    return time.monotonic() + limits.soft_time_limit
