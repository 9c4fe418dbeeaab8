"""Brings here what another machine saved."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import structlog

from sluice_core.adapters.storage import Storage
from sluice_core.adapters.storage.folder import mapped
from sluice_core.adapters.ytdlp.resume import PartialFile, noted_length, write_whole
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import RunId, work_key, work_prefix
from sluice_core.runtime.pieces.manifest import Manifest, Piece, manifest_key

log = structlog.get_logger(__name__)

_EPOCH = re.compile(r"/(?:partial|download)\.(\d+)/")


def restore(
    storage: Storage, run: RunId, file: PartialFile, *, check: Callable[[], None]
) -> Manifest | None:
    """Bring here what earlier runs of the job saved of a file, unless more of it is here.

    Args:
        storage: of the job.
        run: the one that goes on.
        file: where to, in the run's scratch folder.
        check: called between blocks; what it raises is passed on.

    Returns:
        what is saved of the file that is here now; None when nothing of it is.

    Raises:
        SluiceError: the storage can't be read, or this machine has no room.

    """
    if file.dest.exists():
        return None
    with mapped():
        return _restore(storage, run, file, check)


def _restore(
    storage: Storage, run: RunId, file: PartialFile, check: Callable[[], None]
) -> Manifest | None:
    keys = list(storage.keys(work_prefix(run.job_id)))
    if _bring_whole(storage, run, file, keys, check):
        return None
    manifest = _newest(storage, run, file.dest.name, keys)
    if manifest is None:
        return None
    here = file.load()
    if file.part_size() >= manifest.length and here.generation is not None:
        return manifest if here.generation == manifest.state.generation else None
    return _bring(storage, manifest, file, check)


def _bring_whole(
    storage: Storage, run: RunId, file: PartialFile, keys: list[str], check: Callable[[], None]
) -> bool:
    """Take a file that an earlier run had finished, before it was lost with another one."""
    name = file.dest.name
    for epoch in sorted(_epochs(keys), reverse=True):
        key = work_key(RunId(run.job_id, Actor.DOWNLOAD, epoch), name)
        if key not in keys or epoch >= run.epoch:
            continue
        notes = f"{key.removesuffix(name)}{file.gaps_file.name}"
        if notes in keys and not bring(storage, notes, file.gaps_file, check=check):
            continue
        if bring(storage, key, file.dest, check=check):
            log.info("whole_file_restored", name=name, epoch=epoch)
            return True
        file.gaps_file.unlink(missing_ok=True)
    return False


def bring(storage: Storage, key: str, path: Path, *, check: Callable[[], None]) -> bool:
    """Copy a stored file to a path here, whole or not at all; False when it is not there.

    Raises as `restore`.
    """
    target = path.with_name(f"{path.name}.restored")
    with mapped():
        found = storage.stat(key)
        with target.open("wb") as out:
            size, _ = _copy(storage, key, out, check)
        if found is not None and size == found.bytes > 0:
            target.replace(path)
            return True
        target.unlink()
        return False


def _newest(storage: Storage, run: RunId, name: str, keys: list[str]) -> Manifest | None:
    for epoch in sorted(_epochs(keys), reverse=True):
        key = manifest_key(RunId(run.job_id, run.stage, epoch), name)
        if key in keys and epoch < run.epoch:
            try:
                return Manifest.loads(b"".join(storage.read(key)))
            except SluiceError as exc:
                log.warning("manifest_unreadable", key=key, error=exc.message)
    return None


def _epochs(keys: list[str]) -> set[int]:
    return {int(found[1]) for key in keys if (found := _EPOCH.search(key))}


def _bring(
    storage: Storage, manifest: Manifest, file: PartialFile, check: Callable[[], None]
) -> Manifest | None:
    target = file.dest.with_name(f"{file.dest.name}.restored")
    with target.open("wb") as out:
        good = _bring_pieces(storage, manifest.pieces, out, check)
    found = replace(manifest, pieces=good)
    needed = noted_length(manifest.note) if manifest.note is not None else 1
    if needed is None or found.length < needed:
        log.warning("partial_file_lost", name=file.dest.name, bytes=found.length)
        target.unlink()
        return None
    file.forget()
    target.replace(file.part)
    if found.note is not None:
        write_whole(file.note_file, found.note.encode())
    # Last: without it the rest proves nothing.
    file.save(found.state)
    log.info("partial_file_restored", name=file.dest.name, bytes=found.length)
    return found


def _bring_pieces(
    storage: Storage, pieces: tuple[Piece, ...], out: IO[bytes], check: Callable[[], None]
) -> tuple[Piece, ...]:
    """Copy the pieces in order, up to the first that is not what it was; returns the good ones."""
    end = 0
    for number, piece in enumerate(pieces):
        if _copy(storage, piece.key, out, check) != (piece.bytes, piece.crc32):
            log.warning("piece_unusable", key=piece.key)
            out.truncate(end)
            return pieces[:number]
        end += piece.bytes
    return pieces


def _copy(storage: Storage, key: str, out: IO[bytes], check: Callable[[], None]) -> tuple[int, int]:
    """Copy a stored file; returns its length and CRC-32, or (0, 0) when it is missing."""
    size = checksum = 0
    for block in storage.read(key):
        check()
        out.write(block)
        size += len(block)
        checksum = zlib.crc32(block, checksum)
    return size, checksum
