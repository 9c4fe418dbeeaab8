"""What is kept although parts of it are missing, and what an earlier download left to be filled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sluice_core.adapters.layout import read_layout
from sluice_core.adapters.ytdlp.gaps import BYTES
from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.domain.errors import ErrorClass, SluiceError
from sluice_core.domain.gaps import Gap, Span
from sluice_core.domain.plan import Plan, Source, Track
from sluice_core.runtime.pieces import bring
from sluice_core.runtime.run import Run

#: Of which stream -> what was fetched of it.
Earlier = Mapping[tuple[str, str], Source]


def earlier_of(plan: Plan) -> Earlier:
    """What an earlier download of a job that ended with gaps fetched."""
    return {(source.kind, source.format_id): source for source in plan.fetched}


def bring_gapped(run: Run, file: PartialFile, source: Source | None) -> None:
    """Bring a stored file with gaps here, so that only what is missing is asked for.

    Nothing happens when this run or one before it has begun with that.

    Raises:
        SluiceError: the storage can't be read, or this machine has no room.

    """
    if source is None or not source.gaps_key:
        return
    if file.dest.exists() or file.gapped.exists() or file.part.exists():
        return
    storage = run.deps.storage
    if bring(storage, source.gaps_key, file.gaps_file, check=run.check):
        bring(storage, source.key, file.dest, check=run.check)


def gap_of(path: Path, track: Track, *, allowed: bool, promised: bool) -> Gap | None:
    """What a fetched file is without; None when it is whole.

    Args:
        path: the file.
        track: what it is.
        allowed: whether it may be kept without its end.
        promised: the site named its size, and that many bytes came: asking again is of no use.

    Raises:
        SluiceError: `incomplete`, the file's own structure says that its end is missing; the file
            is gone, so that another try begins anew.

    """
    note = PartialFile(path).gaps()
    if note is not None and note.unit == BYTES:
        return note.to_gap(track.kind)
    if read_layout(path).complete:
        return note.to_gap(track.kind) if note is not None else None
    if allowed and promised and note is None:
        size = path.stat().st_size
        return Gap(track.kind, track.format_id, "incomplete", BYTES, spans=(Span(first=size),))
    path.unlink()
    raise SluiceError(
        "the end of the media is missing",
        code="incomplete",
        error_class=ErrorClass.PERMANENT if promised else None,
    )
