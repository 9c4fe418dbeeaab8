"""The built-in tasks. Each is harmless when it runs twice, and stops between two steps if told to.

None touches a file in use: rows are locked and looked at again before anything is decided of them,
and files go only after the rows that pointed at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event

import sqlalchemy as sa

from sluice_core.adapters.db import (
    audit,
    callbacks,
    dead_letters,
    firings,
    idempotency,
    second_chance,
    subscriptions,
    sweeps,
)
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.schedule import (
    DELETE_EXPIRED,
    PURGE_ROWS,
    RETRY_TRANSIENT,
    SWEEP_STORAGE,
    TRIM,
)
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.publisher import publish_now
from sluice_scheduler import sweep
from sluice_scheduler.chores import Chore

#: Rows per transaction.
BATCH = 200
#: Seconds that a failed job rests before it gets another chance, and after which it gets none.
REST, TOO_LATE = 1800.0, 86_400.0
#: Failures in all after which a job gets no further chance: the first one and two more.
MAX_FAILURES = 3
#: Seconds that ended callbacks are remembered.
KEEP_CALLBACKS = 7 * 86_400.0
#: Seconds that an entry which left its subscription's list is remembered.
KEEP_ENTRIES = 90 * 86_400.0


def tasks(deps: StageDeps) -> Mapping[str, Chore]:
    """Name of a built-in schedule -> what it does."""
    return {
        DELETE_EXPIRED: lambda stop: delete_expired(deps, stop),
        RETRY_TRANSIENT: lambda stop: retry_transient(deps, stop),
        PURGE_ROWS: lambda stop: purge_rows(deps, stop),
        SWEEP_STORAGE: lambda _stop: sweep_storage(deps),
        TRIM: lambda _stop: trim(deps),
    }


def delete_expired(deps: StageDeps, stop: Event) -> str:
    """Forget finished files whose time is over; the sweep of ended jobs then removes them."""
    expired = _repeat(deps, stop, lambda c: sweeps.expire_files(c, now=deps.clock(), limit=BATCH))
    return f"files of {expired} jobs expired"


def retry_transient(deps: StageDeps, stop: Event) -> str:
    """Give jobs another chance whose failure may have passed by itself."""
    now = deps.clock()
    rule = second_chance.Rule(
        failed_before=now - REST, failed_after=now - TOO_LATE, max_failures=MAX_FAILURES
    )
    with read(deps.engine) as connection:
        job_ids = second_chance.candidates(connection, rule, limit=BATCH)
    retried = 0
    for job_id in job_ids:
        if stop.is_set():
            break
        with write(deps.engine) as connection:
            orders = second_chance.retry(connection, job_id, rule, now=now)
        if orders is not None:
            retried += 1
            publish_now(deps.broker, orders, now=now)
    return f"{retried} jobs tried again"


def purge_rows(deps: StageDeps, stop: Event) -> str:
    """Mark jobs of long ago for removal, and forget what is remembered for a time only."""
    now = deps.clock()
    older_than = now - deps.settings.jobs.retention_jobs
    purged = _repeat(
        deps,
        stop,
        lambda c: sweeps.purge_rows(c, older_than=older_than, now=now, limit=BATCH),
    )
    cap = deps.settings.jobs.max_ended_jobs
    purged += _repeat(deps, stop, lambda c: sweeps.purge_excess(c, cap=cap, now=now, limit=BATCH))
    with write(deps.engine) as connection:
        others = idempotency.purge(connection, now=now)
        others += sweeps.purge_gone(connection, now=now)
        others += firings.purge(connection)
        others += callbacks.purge(connection, older_than=now - KEEP_CALLBACKS)
        others += subscriptions.purge(connection, older_than=now - KEEP_ENTRIES)
    return f"{purged} jobs and {others} other rows of long ago"


def sweep_storage(deps: StageDeps) -> str:
    """Remove files in storage that no row points at."""
    return f"{sweep.deep_sweep(deps.engine, deps.storage)} files removed"


def trim(deps: StageDeps) -> str:
    """Cut dead letters, the trail of operators and the stream of events to their caps."""
    with write(deps.engine) as connection:
        letters = dead_letters.trim(connection)
        trail = audit.trim(connection)
    with call():
        events = deps.signals.xtrim(keys.EVENTS, maxlen=keys.EVENTS_MAXLEN, approximate=True)
    return f"{letters} dead letters, {trail} actions and {events} events dropped"


def _repeat(deps: StageDeps, stop: Event, work: Callable[[sa.Connection], int]) -> int:
    """Do batches, each in a transaction of its own, until one is not full."""
    done = 0
    while not stop.is_set():
        with write(deps.engine) as connection:
            count = work(connection)
        done += count
        if count < BATCH:
            break
    return done
