"""A slot that helps with another run's work: as `stage`, but nothing of it counts for the job.

Whatever becomes of it, the job's own run does what is left undone. So there is no retry, no dead
letter and no quarantine here; only an attempt of its own, which gives the signs of life.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
import structlog
from structlog.contextvars import bind_contextvars

from sluice_core.adapters.db import claims, helping, outbox
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import (
    BrokerAwayError,
    ChildLostError,
    HandBackError,
    SluiceError,
    StaleRunError,
    StoreAwayError,
)
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import queue_name
from sluice_core.domain.paths import help_folder
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.disk import FULL
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import Outcome, Run, stored

log = structlog.get_logger(__name__)

#: Orders that are looked for in Redis, the oldest: a younger one that waits has them before it.
WAITING_LOOKED_FOR = 10

#: Does what can be done of the run's work; True when another slot is to go on instead of this one.
Helper = Callable[[Run], bool]


@dataclass(frozen=True, slots=True)
class Helped:
    """A stage's handler whose long runs other slots of its pool help with."""

    handle: Callable[[Run], Outcome]
    help: Helper

    def __call__(self, run: Run) -> Outcome:
        return self.handle(run)


@dataclass(frozen=True, slots=True)
class _End:
    outcome: str
    error: JobError | None = None
    again: bool = False


def run_help(deps: StageDeps, help_: Helper, message: claims.Message) -> None:
    """Take the message's permit and help; its end is stored before this returns.

    Args:
        deps: of this process.
        help_: the stage's own way.
        message: what was delivered.

    Raises:
        StoreAwayError: the database went away and this process stops.

    """
    claim = _claim(deps, message)
    if claim is None:
        log.info("help_not_wanted", job=message.job_id, epoch=message.epoch)
        return
    run = Run(deps, claim, folder=help_folder(claim.attempt_id, claim.job.epoch))
    bind_contextvars(attempt=claim.number)
    deps.running.add(
        claim.attempt_id,
        claim.job.id,
        None,
        hard_at=run.hard_at,
        on_hard=lambda _late: run.kill_child(),
    )
    try:
        end = _work(run, help_)
        _store(run, end)
    finally:
        deps.running.remove(claim.attempt_id)
        shutil.rmtree(run.scratch, ignore_errors=True)


def is_slot_wanted(deps: StageDeps) -> bool:
    """Whether a job waits that a slot of this process would take, or the process is to end."""
    if deps.running.is_asked_to_drain:
        return True
    lanes = (queue_name(deps.stage, lane) for lane in deps.limits.taken_lanes)
    queues = [queue for queue in lanes if queue not in deps.running.paused()]
    try:
        if not any(deps.broker.waiting(queues).values()):
            return False
        # What waits may be others who ask for help: that is no reason to change places.
        with read(deps.engine) as connection:
            orders = outbox.oldest_due(
                connection, deps.stage, queues, now=deps.clock(), limit=WAITING_LOOKED_FOR
            )
        return any(sight.before is not None for sight in deps.broker.sights(orders))
    except (StoreAwayError, BrokerAwayError):
        # Nothing is handed out meanwhile.
        return False


def _claim(deps: StageDeps, message: claims.Message) -> claims.Claim | None:
    now, attempt_id, tries = deps.clock(), new_id(), 0

    def claim(connection: sa.Connection) -> claims.Claim | None:
        nonlocal tries
        tries += 1
        won = helping.claim(
            connection, message=message, worker=deps.worker_id, now=now, attempt_id=attempt_id
        )
        # The first try may have been committed although its answer got lost.
        return helping.claimed_as(connection, attempt_id) if won is None and tries > 1 else won

    return stored(deps, claim)


def _work(run: Run, help_: Helper) -> _End:
    try:
        run.scratch.mkdir(parents=True, exist_ok=True)
        return _End("ok", again=help_(run))
    except HandBackError:
        return _End("handed_back", again=True)
    except StaleRunError:
        # Canceled, ended, or taken back: nobody waits for it.
        return _End("canceled")
    except ChildLostError as exc:
        return _End("child_lost", error=_as_error(SluiceError(str(exc), code="worker_lost")))
    except StoreAwayError:
        raise
    except Exception as exc:
        if isinstance(exc, OSError) and exc.errno in FULL:
            # As in `stage`: it may show anywhere.
            exc = SluiceError(code="disk_full")  # mapped
        elif not isinstance(exc, SluiceError):
            log.exception("help_crashed", job=run.job.id)
            exc = SluiceError(f"{type(exc).__name__}: {exc}")  # mapped
        return _End("failed", error=_as_error(exc))


def _as_error(exc: SluiceError) -> JobError:
    return JobError(exc.code, exc.error_class.value, exc.message)


def _store(run: Run, end: _End) -> None:
    now = run.deps.clock()

    def store(connection: sa.Connection) -> list[OutboxRow]:
        return helping.end(
            connection,
            run.claim,
            outcome=end.outcome,
            error=end.error,
            again=end.again,
            now=now,
        )

    rows = stored(run.deps, store)
    publish_now(run.deps.broker, rows, now=now)
    code = end.error.code if end.error else None
    log.info("help_ended", outcome=end.outcome, code=code, asked_again=bool(rows))
