"""Local folders of runs: taken over when their writer is proven gone, removed when of no use."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import liveness, sweeps
from sluice_core.adapters.db.engine import read
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import WARM_UP, RunId, parse_folder
from sluice_core.domain.states import ACTIVE, Status
from sluice_core.runtime.children import lock_is_held
from sluice_core.runtime.children.spec import LOCK_NAME

log = structlog.get_logger(__name__)

#: Jobs asked for in one query.
BATCH = 500
#: How the name of a fetched track ends.
TRACK_SUFFIX = ".media"
#: In a run's folder: it has taken what earlier ones left, and needs them no more.
TAKEN = ".taken-over"
#: Seconds after which a warm-up is over, well or killed; one that is cut off harms nobody.
WARM_UP_ENDS = 60.0


def take_over(root: Path, run: RunId) -> list[Path]:
    """Move earlier partial work of the same job and stage into the run's own folder.

    Only from writers that are proven gone: a media child holds its folder's lock from before its
    start to its end. The newest folder wins, as a whole; of a track that it knows, nothing is taken
    from older ones, since files of two runs do not belong together.

    Returns:
        the files that are now in the run's folder.

    """
    own = root / run.folder
    earlier = [
        (found.epoch, root / found.folder)
        for found in folders(root, run.stage)
        if found.job_id == run.job_id and found.epoch < run.epoch
    ]
    taken: list[Path] = []
    for _, folder in sorted(earlier, reverse=True):
        if lock_is_held(folder / LOCK_NAME):
            log.info("partial_work_in_use", folder=folder.name)
            continue
        whole = _take_whole(folder, own)
        taken += _move_files(folder, own) if whole is None else whole
        shutil.rmtree(folder, ignore_errors=True)
    (own / TAKEN).touch()
    return taken


def _take_whole(folder: Path, own: Path) -> list[Path] | None:
    """In one step, which a kill can't divide; None when the own folder is no longer empty."""
    (folder / TAKEN).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rename(own)
        return [file for file in own.iterdir() if file.name != LOCK_NAME]
    return None


def _move_files(folder: Path, own: Path) -> list[Path]:
    known = {_track(file.name) for file in own.iterdir()}
    moved = []
    for file in folder.iterdir():
        if file.name != LOCK_NAME and file.is_file() and _track(file.name) not in known:
            target = own / file.name
            file.rename(target)
            moved.append(target)
    return moved


def _track(name: str) -> str:
    """What a file belongs to: partial files and notes are named like the whole, and more."""
    return name.partition(TRACK_SUFFIX)[0]


def folders(root: Path, stage: Actor) -> list[RunId]:
    """Every run of the stage that has a folder here."""
    found = (parse_folder(path.name) for path in root.iterdir() if path.is_dir())
    return [run for run in found if run is not None and run.stage is stage]


def sweep(engine: sa.Engine, root: Path, stage: Actor) -> int:
    """Remove folders that nobody can use any more; returns how many.

    Kept are: those whose child lives, the one of the run that owns its job now, the newest partial
    download of a job that may still be continued, and older ones until it has taken them over.

    Raises:
        StoreAwayError: nobody can tell now; nothing was removed.

    """
    try:
        runs = folders(root, stage)
    except OSError as exc:
        # A disk that is away is no reason to end what runs.
        log.warning("scratch_unreadable", reason=str(exc))
        return 0
    newest: dict[str, int] = {}
    for run in runs:
        newest[run.job_id] = max(run.epoch, newest.get(run.job_id, run.epoch))
    owners: dict[str, tuple[int, Status, bool]] = {}
    job_ids = sorted(newest)
    for start in range(0, len(job_ids), BATCH):
        with read(engine) as connection:
            owners |= sweeps.scratch_owners(connection, job_ids[start : start + BATCH])
    removed = _sweep_help(engine, root) if stage is Actor.TRANSCODE else 0
    for run in runs:
        folder = root / run.folder
        following = root / RunId(run.job_id, stage, newest[run.job_id]).folder
        wanted = run.epoch == newest[run.job_id] or not (following / TAKEN).exists()
        if _is_useful(run, owners.get(run.job_id), wanted=wanted):
            continue
        if not lock_is_held(folder / LOCK_NAME):
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed + _sweep_warm_ups(root, before=time.time() - WARM_UP_ENDS)


def _sweep_help(engine: sa.Engine, root: Path) -> int:
    """Remove what slots left that helped and are gone: each folder bears its attempt's id."""
    found = folders(root, Actor.HELP)
    if not found:
        return 0
    with read(engine) as connection:
        helping = liveness.open_among(connection, [run.job_id for run in found])
    removed = 0
    for run in found:
        folder = root / run.folder
        if run.job_id not in helping and not lock_is_held(folder / LOCK_NAME):
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _sweep_warm_ups(root: Path, *, before: float) -> int:
    """Remove what killed media servers left of making ready."""
    removed = 0
    for folder in root.glob(f"{WARM_UP}*"):
        # Another worker may be at it, too.
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime < before:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


def _is_useful(run: RunId, owner: tuple[int, Status, bool] | None, *, wanted: bool) -> bool:
    if owner is None:
        return False
    epoch, status, needs_download = owner
    if run.epoch >= epoch and status in ACTIVE:
        return True
    resumable = run.stage is Actor.DOWNLOAD and wanted and needs_download
    return resumable and (status in ACTIVE or status is Status.FAILED)
