"""How a run ends: what becomes of its job and what is ordered next, in one transaction.

An ending is decided first, outside of any transaction, and stored once, whatever becomes of the
database meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import jobs, liveness, runs, tallies
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.errors import CODES, ChildLostError, SluiceError, StaleRunError
from sluice_core.domain.job import Job, JobError
from sluice_core.domain.quarantine import max_losses
from sluice_core.domain.retry import RetryIn, decide
from sluice_core.runtime.admission import pause_host
from sluice_core.runtime.run import Advance, Expanded, Outcome, Run, stored

log = structlog.get_logger(__name__)

#: What a run's job and orders become, in one transaction.
Ending = Callable[[sa.Connection], tuple[Job, list[OutboxRow]]]


def done(run: Run, outcome: Outcome) -> Ending:
    """The handler's own answer: the next stage, children, or the end of the job."""
    now = run.deps.clock()

    def ending(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        if isinstance(outcome, Advance):
            return _with_order(
                runs.advance(connection, run.claim, to=outcome.to, fields=outcome.fields, now=now)
            )
        if isinstance(outcome, Expanded):
            return runs.expanded(connection, run.claim, fields=outcome.fields, now=now)
        return runs.succeed(
            connection,
            run.claim,
            files=outcome.files,
            fields=outcome.fields,
            gaps=outcome.gaps,
            sweep_at=now + run.deps.settings.jobs.retention_partial,
            expires_at=now + run.deps.settings.jobs.retention_files,
            now=now,
        )

    return ending


def handed_back(run: Run) -> Ending:
    """The same stage again, elsewhere and uncounted."""
    now = run.deps.clock()
    return lambda connection: _with_order(runs.hand_back(connection, run.claim, now=now))


def failed(run: Run, exc: SluiceError) -> Ending:
    """Another try, or the end."""
    deps, now = run.deps, run.deps.clock()
    error = JobError(exc.code, exc.error_class.value, exc.message)
    decision = decide(
        exc,
        tries=run.claim.job.tries,
        max_tries=deps.limits.max_tries,
        rng=deps.rng,
        free=_ended_so(run, exc.code) if CODES[exc.code].free_runs else 0,
    )
    log.warning("run_failed", code=exc.code, message=exc.message, decision=repr(decision))
    if isinstance(decision, RetryIn):
        pause_host(deps, run.job, exc, decision.delay)

    def ending(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        if isinstance(decision, RetryIn):
            due_at = now + decision.delay
            return _with_order(
                runs.retry_later(
                    connection,
                    run.claim,
                    error,
                    due_at=due_at,
                    counted=decision.counted,
                    now=now,
                )
            )
        return runs.fail(
            connection,
            run.claim,
            error,
            dead=decision.exhausted,
            sweep_at=now + deps.settings.jobs.retention_partial,
            now=now,
        )

    return ending


def _ended_so(run: Run, code: str) -> int:
    """How many runs of this stage have ended so since somebody asked for the job."""
    return stored(
        run.deps, lambda connection: runs.retried_for(connection, run.job, code), begin=read
    )


def child_lost(run: Run, exc: ChildLostError) -> Ending:
    """The job goes on elsewhere, or is put aside when this process was its own."""
    deps, now = run.deps, run.deps.clock()
    log.error("child_lost", losses=run.job.losses, reason=str(exc))

    def ending(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        return liveness.lose_child(
            connection,
            run.claim,
            str(exc),
            max_losses=max_losses(deps.limits.lone_losses, seen=True),
            sweep_at=now + deps.settings.jobs.retention_partial,
            now=now,
        )

    return ending


def store(run: Run, ending: Ending) -> tuple[Job, list[OutboxRow]]:
    """Store the end of a run, once, whatever becomes of the database meanwhile.

    Returns:
        the job, and the rows to publish.

    Raises:
        StaleRunError: another run owns the job, or it was canceled.
        StoreAwayError: this process stops, and the database was still away.

    """
    # Of two tries that both went through, the second is refused as a whole.
    happened = run.tallies()

    def end(connection: sa.Connection) -> tuple[Job, list[OutboxRow]]:
        ended = ending(connection)
        tallies.note(connection, happened)
        return ended

    try:
        return stored(run.deps, end)
    except StaleRunError:
        job = stored(run.deps, lambda connection: _ended_job(connection, run))
        if job is None:
            raise
        # A commit went through although its answer got lost; the relay publishes what it ordered.
        log.info("commit_was_known", job=run.job.id)
        return job, []


def _ended_job(connection: sa.Connection, run: Run) -> Job | None:
    """The job, if it was this very run that ended its attempt."""
    if not runs.ended_itself(connection, run.claim.attempt_id):
        return None
    return jobs.get(connection, run.job.id)


def _with_order(result: tuple[Job, OutboxRow]) -> tuple[Job, list[OutboxRow]]:
    job, row = result
    return job, [row]
