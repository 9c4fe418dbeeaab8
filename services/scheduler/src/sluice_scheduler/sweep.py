"""Removes files that nothing points at any more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import dead_letters, ownership, sweeps
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.paths import final_prefix, work_prefix

log = structlog.get_logger(__name__)

BATCH = 100
#: Seconds that Idempotency-Keys are remembered.
IDEMPOTENCY_TTL = 24 * 3600.0
#: Seconds after which an upload that was begun is one whose process is gone.
UNFINISHED_AFTER = 24 * 3600.0
WORK, FINAL = "work/", "files/"
#: What this system writes; anything else in its storage is not its own to remove.
_KEY = re.compile(r"(?:work|files)/(?P<job>[0-9A-Z]{26})/[a-z]+\.\d+/.+", re.DOTALL)
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


def deep_sweep(engine: sa.Engine, storage: Storage, now: float) -> int:
    """Walk the whole storage and remove what no row points at and no run can use any more.

    For what the sweep of each job can't know of: files of a job whose row is gone, of a run that
    was killed between its last file and its commit, of a writer that woke up after the sweep.
    Harmless beside live runs and beside another one of its kind: a file of a present epoch is
    never touched, and one of a dead epoch can't come to be used again.

    Returns:
        how many files were removed.

    """
    removed = 0
    for root in (WORK, FINAL):
        batch: dict[str, list[str]] = {}
        for key in storage.keys(root):
            found = _KEY.fullmatch(key)
            if found is None:
                continue
            if found["job"] not in batch and len(batch) >= BATCH:
                removed += _sweep_batch(engine, storage, batch)
                batch = {}
            batch.setdefault(found["job"], []).append(key)
        removed += _sweep_batch(engine, storage, batch)
    unfinished = storage.abort_unfinished(before=now - UNFINISHED_AFTER)
    if removed or unfinished:
        log.warning("deep_sweep", removed=removed, unfinished=unfinished)
    return removed + unfinished


def _sweep_batch(engine: sa.Engine, storage: Storage, batch: Mapping[str, Sequence[str]]) -> int:
    if not batch:
        return 0
    with read(engine) as connection:
        owners = ownership.owners(connection, list(batch))
    removed = 0
    for job_id, keys in batch.items():
        for key in useless(keys, owners.get(job_id)):
            storage.delete(key)
            removed += 1
    return removed


def useless(keys: Sequence[str], owner: ownership.Owner | None) -> list[str]:
    """Which of one job's keys may go.

    Args:
        keys: of one root.
        owner: read after the keys were listed; None when the job has no row.

    """
    if owner is None:
        return list(keys)
    partial = [epoch_of(key) for key in keys if owner.needs_download and "/download." in key]
    newest_partial = max(partial, default=-1) if owner.may_go_on else -1
    return [key for key in keys if not _is_useful(key, owner, newest_partial)]


def _is_useful(key: str, owner: ownership.Owner, newest_partial: int) -> bool:
    epoch = epoch_of(key)
    if key in owner.keys or epoch > owner.epoch:
        return True
    if owner.may_go_on and epoch == owner.epoch:
        return True
    return "/download." in key and epoch == newest_partial


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
