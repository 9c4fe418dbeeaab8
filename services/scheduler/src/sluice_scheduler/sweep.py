"""Removes files that nothing points at any more."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import ownership, sweeps
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.storage import Storage, Unfinished
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.paths import final_prefix, work_prefix

log = structlog.get_logger(__name__)

BATCH = 100
#: Seconds of one turn: shorter than anything that its thread does beside it may be late.
PATIENCE = 0.5
#: Jobs whose files are removed at once: of a storage elsewhere each answer takes its time.
REMOVERS = 8
#: Seconds after which a put that was begun is one whose process is gone, whatever else is known.
UNFINISHED_AFTER = 24 * 3600.0
WORK, FINAL = "work/", "files/"
#: What the next run of the same job may go on from.
_FETCHED = re.compile(r"/download\.\d+/")
#: Pieces of partial files: what one run saves names those of all runs before it.
_PIECES = re.compile(r"/partial\.\d+/")
#: Finished segments of an encode: the next run goes on from those of all runs before it.
_SEGMENTS = re.compile(r"/segments\.\d+/")
#: What this system writes; anything else in its storage is not its own to remove.
_KEY = re.compile(r"(?:work|files)/(?P<job>[0-9A-Z]{26})/[a-z]+\.\d+/.+", re.DOTALL)
#: The run that a key begins with.
_RUN = re.compile(r"(?:work|files)/(?P<job>[0-9A-Z]{26})/[a-z]+\.(?P<epoch>\d+)/")
_EPOCH = re.compile(r"/[a-z]+\.(\d+)/")


def ended_jobs(
    engine: sa.Engine, storage: Storage, *, now: float, patience: float = PATIENCE
) -> int:
    """Remove what ended jobs left in storage; returns how many jobs were swept.

    Args:
        engine: the database.
        storage: with their files.
        now: Unix seconds.
        patience: seconds after which the rest is left for the next time: others wait for this
            thread.

    """
    swept, until = 0, time.monotonic() + patience
    while time.monotonic() < until:
        number, more = _sweep_some(engine, storage, now=now, until=until)
        swept += number
        if not more:
            break
    return swept


def _sweep_some(
    engine: sa.Engine, storage: Storage, *, now: float, until: float
) -> tuple[int, bool]:
    """One batch: how many were swept, and whether it is worth while to go on at once."""
    with read(engine) as connection:
        ids = sweeps.due_ids(connection, now=now, limit=BATCH)
    if not ids:
        return 0, False
    with write(engine) as connection:
        begun = sweeps.begin_many(connection, ids, now=now)
    # The first are removed however late it is: a slow database must not keep all from their turn.
    deadlines = [math.inf] * REMOVERS + [until] * len(begun)
    with ThreadPoolExecutor(REMOVERS) as pool:
        ended = pool.map(partial(_is_removed, storage), begun, deadlines)
        gone = [sweep for sweep, removed in zip(begun, ended, strict=True) if removed]
    with write(engine) as connection:
        sweeps.done_many(connection, gone)
    # What stays due would be asked for again at once.
    return len(gone), len(gone) == BATCH


def _is_removed(storage: Storage, sweep: sweeps.Sweep, until: float) -> bool:
    if not sweep.ran:
        return True
    if time.monotonic() > until:
        return False
    try:
        _remove(storage, sweep)
    except SluiceError as exc:
        log.warning("sweep_postponed", job=sweep.job_id, reason=exc.message)
        return False
    return True


def _remove(storage: Storage, sweep: sweeps.Sweep) -> None:
    for prefix in (work_prefix(sweep.job_id), final_prefix(sweep.job_id)):
        for key in list(storage.keys(prefix)):
            if key not in sweep.keep and epoch_of(key) <= sweep.epoch:
                storage.delete(key)


def epoch_of(key: str) -> int:
    """The epoch in a key such as `work/<job>/download.3/137.mp4`; -1 when it has none."""
    found = _EPOCH.search(key)
    return int(found[1]) if found else -1


def deep_sweep(engine: sa.Engine, storage: Storage) -> int:
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
    if removed:
        log.warning("deep_sweep", removed=removed)
    return removed


def unfinished_puts(engine: sa.Engine, storage: Storage, *, now: float) -> int:
    """Drop what puts of killed processes left; returns how many.

    Whether a process is gone can't be told from here, but whether its run is over can: a put of an
    epoch that is dead is of no use to anybody, and fails if it still goes on. But for segments:
    slots that help go on when the run that asked them is lost.
    """
    dropped = 0
    found = storage.unfinished()
    while batch := list(islice(found, BATCH)):
        runs = [_RUN.match(put.key) for put in batch]
        with read(engine) as connection:
            owners = ownership.owners(connection, sorted({run["job"] for run in runs if run}))
        for put, run in zip(batch, runs, strict=True):
            if _is_over(put, run, owners, now=now):
                storage.abort(put)
                dropped += 1
    if dropped:
        log.info("unfinished_puts_dropped", count=dropped)
    return dropped


def _is_over(
    put: Unfinished,
    run: re.Match[str] | None,
    owners: Mapping[str, ownership.Owner],
    *,
    now: float,
) -> bool:
    if put.began_at < now - UNFINISHED_AFTER:
        return True
    if run is None:
        return False
    owner = owners.get(run["job"])
    if owner is None:
        return True
    return not _goes_on_with(put.key, owner) and int(run["epoch"]) < _present(owner)


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
    return [k for k in keys if k not in owner.keys and epoch_of(k) < _kept_from(k, keys, owner)]


def _kept_from(key: str, keys: Sequence[str], owner: ownership.Owner) -> int:
    """The first epoch whose files like this one stay."""
    if _PIECES.search(key) and owner.may_go_on and owner.needs_download:
        return 0
    if _goes_on_with(key, owner):
        return 0
    return _oldest_fetched(keys, owner) if _FETCHED.search(key) else _present(owner)


def _goes_on_with(key: str, owner: ownership.Owner) -> bool:
    """Whether the key is a segment of an encode that is not over."""
    return bool(_SEGMENTS.search(key)) and owner.may_go_on and not owner.needs_download


def _present(owner: ownership.Owner) -> int:
    """The first epoch whose files may still be in the making."""
    return owner.epoch if owner.may_go_on else owner.epoch + 1


def _oldest_fetched(keys: Sequence[str], owner: ownership.Owner) -> int:
    """The first epoch whose fetched files stay.

    A run goes on from the newest one before its own, while it already writes its own.
    """
    present = _present(owner)
    if not (owner.may_go_on and owner.needs_download):
        return present
    earlier = [e for e in map(epoch_of, filter(_FETCHED.search, keys)) if e < present]
    return max(earlier, default=present)
