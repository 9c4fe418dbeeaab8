"""A long encode, segment by segment: what is finished stays when its worker is lost.

Whoever has time makes them: the job's own run, which fetches what others made and joins all, and
slots that help. Whatever looks otherwise than one run's result makes the caller take one run
instead.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from sluice_core.domain.errors import SluiceError
from sluice_transcoder.cut import may_cut
from sluice_transcoder.encode import Encoder, NotAsOneRunError
from sluice_transcoder.kept import segment_at
from sluice_transcoder.line import Line
from sluice_transcoder.progress import WholeProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sluice_transcoder.cut import Segment
    from sluice_transcoder.encode import Job
    from sluice_transcoder.join import Piece
    from sluice_transcoder.kept import KeptSegment, Shelf
    from sluice_transcoder.line import Turn
    from sluice_transcoder.probe import Probe
    from sluice_transcoder.progress import EncodeProgress
    from sluice_transcoder.turns import Turns

log = structlog.get_logger(__name__)

#: Seconds between looks at what others have made, when nothing else is left to do.
_WAIT = 0.5
#: Seconds for which segments wait for a storage that is away, beyond its client's own tries.
STORAGE_PATIENCE = 60.0

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How a long encode is cut.

    Attributes:
        seconds: of a segment; 0 never cuts.
        sources: what the sources are called and how long, so that a segment is of these alone.
        shelf: where finished segments are.
        line: who encodes which.
        on_segment: called when the first pictures of a segment are encoded.
        on_kept: called when another one is stored.
        on_join: called with the bytes of all segments before they are joined; may raise.

    """

    seconds: float
    sources: Sequence[tuple[str, int]]
    shelf: Shelf
    line: Line = field(default_factory=Line)
    on_segment: Callable[[], None] = lambda: None
    on_kept: Callable[[], None] = lambda: None
    on_join: Callable[[int], None] = lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Joined:
    """The result, checked. `share` is how much of it was not there before this run, 0 to 1."""

    probe: Probe
    share: float


def encode_in_segments(
    job: Job,
    output: Path,
    *,
    cutting: Cutting,
    on_progress: Callable[[EncodeProgress], None],
) -> Joined | None:
    """Encode to `output` by segments; None when it is to be done in one run.

    Raises:
        SluiceError: as `children.convert`, and `disk_full`; but for `transcode_failed`, which one
            run may get around.
        ChildLostError: somebody else ended a child.
        CanceledRunError, StaleRunError, HandBackError: as `job.place.stop` said.

    """
    if not may_cut(job.plan, job.probes, length=cutting.seconds):
        return None
    encoder = Encoder(job, on_first=cutting.on_segment)
    try:
        with ExitStack() as stack:
            return _Whole(job, encoder, cutting, stack, on_progress).to(output)
    except NotAsOneRunError as exc:
        reason = str(exc)
    except SluiceError as exc:
        if exc.code != "transcode_failed":
            raise
        reason = exc.message
    finally:
        encoder.clear()
    log.warning("encoded_in_one_run", reason=reason)
    cutting.line.withdraw()
    return None


def help_with_segments(job: Job, turns: Turns, *, cutting: Cutting) -> bool:
    """Encode segments of somebody else's encode, until none is left or the slot is wanted.

    Returns:
        whether it gave way although there may be something left.

    Raises:
        SluiceError: as `encode_in_segments`; `transcode_failed` also for a segment that is not
            what one run gives.
        ChildLostError: somebody else ended a child.
        CanceledRunError, StaleRunError, HandBackError: as `job.place.stop` said.

    """
    if not may_cut(job.plan, job.probes, length=cutting.seconds):
        return False
    encoder = Encoder(job, on_first=cutting.on_segment)
    try:
        return _help(encoder, turns, cutting)
    except NotAsOneRunError as exc:
        raise SluiceError(str(exc), code="transcode_failed") from exc


def _help(encoder: Encoder, turns: Turns, cutting: Cutting) -> bool:
    segments = encoder.segments(length=cutting.seconds)
    mark = encoder.fingerprint(segments, cutting.sources)
    while (number := turns.take(mark)) is not None:
        path = encoder.make(segments[number], on_progress=turns.progress).path
        key = _patiently(encoder, partial(cutting.shelf.keep, mark, number, path))
        path.unlink()
        turns.finish(key)
        if turns.give_way():
            return True
    return False


def _patiently(encoder: Encoder, work: Callable[[], _R]) -> _R:
    """Do it again while the storage is away: what is encoded is worth a wait."""
    until = time.monotonic() + STORAGE_PATIENCE
    while True:
        try:
            return work()
        except SluiceError as exc:
            if exc.code != "storage_error" or time.monotonic() > until:
                raise
            log.warning("storage_awaited", error=exc.message)
        encoder.wait(_WAIT)


class _Whole:
    """The encode of a job's own run."""

    def __init__(
        self,
        job: Job,
        encoder: Encoder,
        cutting: Cutting,
        stack: ExitStack,
        on_progress: Callable[[EncodeProgress], None],
    ) -> None:
        self._encoder = encoder
        self._cutting = cutting
        self._stack = stack
        self._segments = encoder.segments(length=cutting.seconds)
        self._mark = encoder.fingerprint(self._segments, cutting.sources)
        self._progress = WholeProgress(
            duration=job.plan.duration or 0.0,
            frames=sum(segment.frames for segment in self._segments),
            on_progress=on_progress,
            others=cutting.line.others,
        )

    def to(self, output: Path) -> Joined:
        kept = self._cutting.shelf.find(self._mark)
        log.info("encode_cut", segments=len(self._segments), kept=len(kept))
        pieces = self._pieces(kept)
        if len({piece.pictures.headers for piece in pieces}) > 1:
            raise NotAsOneRunError("segments of two encoders do not go together")
        self._cutting.on_join(sum(piece.path.stat().st_size for piece in pieces))
        found = self._encoder.join(pieces, output, self._progress)
        return Joined(found, self._progress.share)

    def _pieces(self, kept: Mapping[int, KeptSegment]) -> list[Piece]:
        """All segments: those of earlier runs, and the rest made now, by whoever has time."""
        pieces: dict[int, Piece] = {}
        for number, found in kept.items():
            piece = self._brought(self._segments[number], found)
            if piece is not None:
                pieces[number] = piece
                size = piece.path.stat().st_size
                self._progress.kept(self._segments[number].frames, size)
        self._rest(pieces)
        return [pieces[segment.number] for segment in self._segments]

    def _rest(self, pieces: dict[int, Piece]) -> None:
        line = self._cutting.line
        missing = {s.number: s.frames for s in self._segments if s.number not in pieces}
        if missing:
            line.offer(self._mark, missing)
            self._progress.begin()
        while len(pieces) < len(self._segments):
            turn = line.turn()
            if turn is None:
                # Others are at all that is left.
                self._progress.tell(0, 0)
                self._encoder.wait(_WAIT)
                continue
            segment = self._segments[turn.number]
            piece, key = self._taken(turn)
            if piece is None:
                line.refuse(turn)
                continue
            pieces[segment.number] = piece
            line.have(turn, key)
            self._progress.ended(segment.frames, piece.path.stat().st_size)
        line.withdraw()

    def _taken(self, turn: Turn) -> tuple[Piece | None, str | None]:
        """What a turn asks for, and its key in storage."""
        segment = self._segments[turn.number]
        if turn.key is None:
            return self._own(segment)
        return self._brought(segment, segment_at(turn.key)), turn.key

    def _brought(self, segment: Segment, found: KeptSegment) -> Piece | None:
        """A segment that somebody else made; None when it is not what it should be."""
        bring = partial(self._cutting.shelf.bring, found, self._stack)
        local = _patiently(self._encoder, bring)
        if local is None:
            return None
        path = self._encoder.path(segment)
        path.unlink(missing_ok=True)
        path.symlink_to(local)
        try:
            return self._encoder.check(segment, path)
        except NotAsOneRunError as exc:
            log.warning("segment_unusable", key=found.key, reason=str(exc))
            path.unlink()
            return None

    def _own(self, segment: Segment) -> tuple[Piece, str | None]:
        """A segment made now, and its key if it could be stored."""
        piece = self._encoder.make(segment, on_progress=self._progress.tell)
        try:
            key = self._cutting.shelf.keep(self._mark, segment.number, piece.path)
        except SluiceError as exc:
            # It is here, which is all that this run needs.
            log.warning("segment_not_kept", number=segment.number, error=exc.message)
            return piece, None
        self._cutting.on_kept()
        return piece, key
