"""Removes files that nothing points at any more."""

from __future__ import annotations

import re

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import dead_letters, sweeps
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.paths import final_prefix, work_prefix

log = structlog.get_logger(__name__)

BATCH = 100
#: Seconds that Idempotency-Keys are remembered.
IDEMPOTENCY_TTL = 24 * 3600.0
_EPOCH = re.compile(r"/[a-z]+\.(\d+)/")


def ended_jobs(engine: sa.Engine, storage: Storage, *, now: float) -> int:
    """Remove what ended jobs left in storage; returns how many jobs were swept."""
    with read(engine) as connection:
        ids = sweeps.due_ids(connection, now=now, limit=BATCH)
    swept = 0
    for job_id in ids:
        with write(engine) as connection:
            sweep = sweeps.begin(connection, job_id, now=now)
        if sweep is None:
            continue
        try:
            _remove(storage, sweep)
        except SluiceError as exc:
            log.warning("sweep_postponed", job=job_id, reason=exc.message)
            continue
        with write(engine) as connection:
            sweeps.done(connection, sweep)
        swept += 1
    return swept


def _remove(storage: Storage, sweep: sweeps.Sweep) -> None:
    for prefix in (work_prefix(sweep.job_id), final_prefix(sweep.job_id)):
        for key in list(storage.keys(prefix)):
            if key not in sweep.keep and epoch_of(key) <= sweep.epoch:
                storage.delete(key)


def epoch_of(key: str) -> int:
    """The epoch in a key such as `work/<job>/download.3/137.mp4`; -1 when it has none."""
    found = _EPOCH.search(key)
    return int(found[1]) if found else -1


def old_things(engine: sa.Engine, *, retention_jobs: float, now: float) -> None:
    """Expire files, mark long-ended rows, forget old keys, trim dead letters."""
    with write(engine) as connection:
        expired = sweeps.expire_files(connection, now=now, limit=BATCH)
    with write(engine) as connection:
        purged = sweeps.purge_rows(
            connection, older_than=now - retention_jobs, now=now, limit=BATCH
        )
    with write(engine) as connection:
        sweeps.purge_idempotency_keys(connection, older_than=now - IDEMPOTENCY_TTL)
        trimmed = dead_letters.trim(connection)
    if expired or purged or trimmed:
        log.info("swept", expired=expired, purged=purged, trimmed=trimmed)
