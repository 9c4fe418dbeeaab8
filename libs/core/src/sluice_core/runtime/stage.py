"""One run of one stage: claim, handle, and one transaction with the outcome and what follows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextvars import copy_context
from enum import StrEnum

import sqlalchemy as sa
import structlog
from structlog.contextvars import bind_contextvars

from sluice_core.adapters.db import claims, dead_letters, sweeps
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import (
    ChildLostError,
    HandBackError,
    SluiceError,
    StaleRunError,
    StoreAwayError,
)
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import final_key, work_key
from sluice_core.runtime import closing
from sluice_core.runtime.admission import admission
from sluice_core.runtime.alone import run_alone
from sluice_core.runtime.children import EndReason
from sluice_core.runtime.counting import count
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.disk import FULL
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import Outcome, Run, stored, tell

log = structlog.get_logger(__name__)

#: Seconds beyond its hard limit that a run is given to end itself.
HARD_GRACE = 5.0

Handler = Callable[[Run], Outcome]


def run_stage(
    deps: StageDeps, handle: Handler, message: claims.Message, *, attempt_id: str | None = None
) -> None:
    """Claim the message's job and run the stage; every outcome is stored before this returns.

    Args:
        deps: of this process.
        handle: the stage's own work.
        message: what was delivered.
        attempt_id: under which to claim.

    Raises:
        StoreAwayError: the database went away and this process stops: the message must not be
            acknowledged.

    """
    deps.failpoints.hit("run.delivered")
    with admission(deps, message) as may_start:
        if not may_start:
            return
        won = _claim(deps, message, attempt_id or new_id())
        if won is not None:
            _watched(deps, handle, Run(deps, won))
        elif _drop(deps, message) is _Why.SUSPECT:
            run_alone(deps, message)
    deps.failpoints.hit("run.before_ack")


def _watched(deps: StageDeps, handle: Handler, run: Run) -> None:
    """Run while the process watches over it, and the lock tells that it does."""
    attempt_id, job = run.claim.attempt_id, run.job
    bind_contextvars(attempt=run.claim.number)
    # What the watching thread has to say of this run carries the same.
    lines = copy_context()
    deps.running.add(
        attempt_id,
        job.id,
        job.epoch,
        hard_at=run.hard_at,
        on_hard=lambda late: lines.copy().run(_end_by_force, deps, run, late),
    )
    deps.locks.take(job.id, job.epoch)
    try:
        deps.failpoints.hit("run.claimed")
        tell(deps, job, "job")
        _run(deps, handle, run)
    finally:
        deps.running.remove(attempt_id)
        deps.locks.release(job.id, job.epoch)


def _end_by_force(deps: StageDeps, run: Run, late: float) -> None:
    """The hard limit has passed: kill the child, and record the end if the run can't any more.

    Called by the watching thread again and again; all of it may happen twice.
    """
    run.kill_child()
    if late < HARD_GRACE:
        return
    log.error("run_ignores_its_hard_limit", job=run.job.id, late=round(late, 1))
    ending = closing.failed(run, SluiceError(code="hard_time_limit"))
    try:
        with write(deps.engine) as connection:
            job, rows = ending(connection)
    except StaleRunError:
        # Recorded before; or the job is no longer this run's.
        return
    publish_now(deps.broker, rows, now=deps.clock())
    tell(deps, job, "job")


def _claim(deps: StageDeps, message: claims.Message, attempt_id: str) -> claims.Claim | None:
    now, tries = deps.clock(), 0

    def claim(connection: sa.Connection) -> claims.Claim | None:
        nonlocal tries
        tries += 1
        won = claims.claim(
            connection,
            stage=deps.stage,
            message=message,
            worker=deps.worker_id,
            now=now,
            attempt_id=attempt_id,
            alone=deps.alone or not deps.program,
        )
        if won is None and tries > 1:
            # The first try may have been committed although its answer got lost.
            return claims.claimed_as(connection, attempt_id)
        return won

    return stored(deps, claim)


class _Why(StrEnum):
    """Why a message could not be claimed."""

    LATE = "late"
    UNKNOWN = "unknown"
    SUSPECT = "suspect"


def _drop(deps: StageDeps, message: claims.Message) -> _Why:
    """Late or doubled messages go quietly; one that names no job at all is kept for a person."""

    def look(connection: sa.Connection) -> _Why:
        if deps.program and claims.is_suspect(connection, stage=deps.stage, message=message):
            return _Why.SUSPECT
        if sweeps.exists(connection, message.job_id):
            return _Why.LATE
        dead_letters.add(
            connection,
            queue=message.queue,
            job_id=message.job_id,
            reason="unknown job",
            payload=f"message {message.id}, job {message.job_id}, epoch {message.epoch}",
            now=deps.clock(),
        )
        return _Why.UNKNOWN

    why = stored(deps, look)
    log.info("message_not_claimed", job=message.job_id, epoch=message.epoch, why=why.value)
    return why


def _run(deps: StageDeps, handle: Handler, run: Run) -> None:
    started = time.monotonic()
    outcome, keep = "stale", False
    try:
        outcome, keep = _work_and_end(deps, handle, run)
    except StaleRunError:
        log.info("run_stale", job=run.job.id, epoch=run.id.epoch)
        count(deps.engine, "stale_writes_total", stage=deps.stage.value)
        _remove_stored(deps, run)
    except StoreAwayError:
        # Nobody knows how it ended: what is here may be needed.
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(run.scratch, ignore_errors=True)
    log.info("run_ended", outcome=outcome, seconds=round(time.monotonic() - started, 3))


def _work_and_end(deps: StageDeps, handle: Handler, run: Run) -> tuple[str, bool]:
    """Work, and store how it went: a word for the log, and whether the scratch folder stays."""
    resumable = deps.stage is Actor.DOWNLOAD
    try:
        _make_scratch(run)
        result = handle(run)
        deps.failpoints.hit("run.before_commit")
        ended = closing.store(run, closing.done(run, result))
        word, keep = "ok", False
    except HandBackError:
        deps.failpoints.hit("run.hand_back")
        ended = closing.store(run, closing.handed_back(run))
        word, keep = "handed_back", resumable
    except ChildLostError as exc:
        ended = closing.store(run, closing.child_lost(run, exc))
        word, keep = "child_lost", resumable
    except (StaleRunError, StoreAwayError):
        raise
    except Exception as exc:
        if isinstance(exc, OSError) and exc.errno in FULL:
            # It may show anywhere in a handler.
            exc = SluiceError(code="disk_full")  # mapped
        elif not isinstance(exc, SluiceError):
            log.exception("run_crashed", job=run.job.id)
            exc = SluiceError(f"{type(exc).__name__}: {exc}")  # mapped
        if deps.running.reason(run.claim.attempt_id) == EndReason.HARD_LIMIT:
            # Whatever it says, it died of that.
            exc = SluiceError(code="hard_time_limit")
        _remove_stored(deps, run)
        ended = closing.store(run, closing.failed(run, exc))
        word, keep = exc.code, resumable
    # Behind the handlers above: what goes wrong from here on is no failure of the run.
    deps.failpoints.hit("run.after_commit")
    job, rows = ended
    publish_now(deps.broker, rows, now=deps.clock())
    tell(deps, job, "job")
    return word, keep


def _make_scratch(run: Run) -> None:
    try:
        run.scratch.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        code = "disk_full" if exc.errno in FULL else "storage_error"
        words = f"the scratch folder can't be made: {exc.strerror}"
        raise SluiceError(words, code=code) from exc


def _remove_stored(deps: StageDeps, run: Run) -> None:
    """Remove what this run put into storage, and nothing of any other epoch."""
    for prefix in (work_key(run.id, ""), final_key(run.id, "")):
        try:
            for key in list(deps.storage.keys(prefix)):
                deps.storage.delete(key)
        except SluiceError as exc:
            # The job's own sweep comes by later.
            log.warning("remove_failed", prefix=prefix, error=exc.message)
