"""A long encode, segment by segment: what is finished stays when its worker is lost.

Each segment is encoded with the times that its pictures have in the whole, so that the encoder sees
what it sees in one run. Joined they are copied; the sound is made once, from its source, while they
are. Whatever looks otherwise than one run's result makes the caller take one run instead.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import EndReason, error_for
from sluice_transcoder.children import convert, probe, read_through
from sluice_transcoder.command import command_of, source_words
from sluice_transcoder.containers import Container
from sluice_transcoder.cut import (
    PacketReader,
    may_cut,
    packets_command,
    plan_segments,
)
from sluice_transcoder.join import Piece, concat_list, join_command, why_not_one_run
from sluice_transcoder.kept import segment_at
from sluice_transcoder.line import Line
from sluice_transcoder.progress import ProgressReader, SegmentProgress, WholeProgress
from sluice_transcoder.verify import check_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sluice_transcoder.children import Workplace
    from sluice_transcoder.cut import Pictures, Segment
    from sluice_transcoder.kept import KeptSegment, Shelf
    from sluice_transcoder.line import Turns
    from sluice_transcoder.plan import Plan, VideoPlan
    from sluice_transcoder.probe import Probe
    from sluice_transcoder.progress import EncodeProgress
    from sluice_transcoder.tools import Tools

log = structlog.get_logger(__name__)

#: How segments are made and named; another number makes older ones useless.
_FORMAT = 1

#: Encoders whose headers tell how many threads they had: with others, segments don't go together.
_TELL_THREADS = frozenset({"libx265"})

#: Seconds between looks at what others have made, when nothing else is left to do.
_WAIT = 0.5
#: Seconds between looks whether the run is to stop meanwhile.
_POLL = 0.1

#: MP4 keeps each picture's time and duration; without an index in front, as nobody streams it.
_SEGMENT = Container("segment", "mp4", "video/mp4", None, None)

#: The encoder's times as they come, and the first of them exact: MP4 rounds it to milliseconds.
_MUXER_WORDS = ("-movie_timescale", "1000000")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one encode needs; see `transcode.transcode`."""

    sources: Sequence[Path]
    probes: Sequence[Probe]
    plan: Plan
    folder: Path
    tools: Tools
    threads: int
    place: Workplace


@dataclass(frozen=True, slots=True)
class Joined:
    """The result, checked. `share` is how much of it was not there before this run, 0 to 1."""

    probe: Probe
    share: float


class _NotAsOneRunError(Exception):
    """What was cut is not, or may not be, what one run gives."""


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
    try:
        with ExitStack() as stack:
            return _Encode(job, cutting, stack, on_progress).to(output)
    except _NotAsOneRunError as exc:
        reason = str(exc)
    except SluiceError as exc:
        if exc.code != "transcode_failed":
            raise
        reason = exc.message
    finally:
        for path in job.folder.glob("segment.*"):
            path.unlink(missing_ok=True)
    log.warning("encoded_in_one_run", reason=reason)
    cutting.line.withdraw()
    return None


def help_with_segments(job: Job, turns: Turns, *, cutting: Cutting) -> bool:
    """Encode segments of somebody else's encode, until none is left or the slot is wanted.

    Returns:
        whether it gave way although there may be something left.

    Raises:
        SluiceError: as `encode_in_segments`; `transcode_failed` also for a segment that is not
            what one run gives, `storage_error` for one that can't be stored.
        ChildLostError: somebody else ended a child.
        CanceledRunError, StaleRunError, HandBackError: as `job.place.stop` said.

    """
    if not may_cut(job.plan, job.probes, length=cutting.seconds):
        return False
    try:
        with ExitStack() as stack:
            return _Encode(job, cutting, stack, lambda _progress: None).help(turns)
    except _NotAsOneRunError as exc:
        raise SluiceError(str(exc), code="transcode_failed") from exc


def fingerprint(video: VideoPlan, segments: Sequence[Segment], cutting: Cutting, job: Job) -> str:
    """What must be the same for a segment that somebody else made to be of use."""
    edges = [(segment.start, segment.end) for segment in segments]
    threads = job.threads if video.encode and video.encode.encoder in _TELL_THREADS else None
    version = job.tools.version
    words = repr((_FORMAT, version, list(cutting.sources), video, edges, threads))
    return hashlib.sha256(words.encode()).hexdigest()[:32]


class _Encode:
    """One encode of one run."""

    def __init__(
        self,
        job: Job,
        cutting: Cutting,
        stack: ExitStack,
        on_progress: Callable[[EncodeProgress], None],
    ) -> None:
        assert job.plan.video is not None  # noqa: S101  # `may_cut` said so
        self._job = job
        self._video = job.plan.video
        self._cutting = cutting
        self._stack = stack
        self._on_progress = on_progress
        deadline = job.place.deadline_s
        self._ends = None if deadline is None else time.monotonic() + deadline

    def to(self, output: Path) -> Joined:
        segments = self._segments()
        mark = self._fingerprint(segments)
        kept = self._cutting.shelf.find(mark)
        log.info("encode_cut", segments=len(segments), kept=len(kept))
        whole = WholeProgress(
            duration=self._job.plan.duration or 0.0,
            frames=sum(segment.frames for segment in segments),
            on_progress=self._on_progress,
            others=self._cutting.line.others,
        )
        pieces = self._pieces(segments, kept, mark, whole)
        if len({piece.pictures.headers for piece in pieces}) > 1:
            raise _NotAsOneRunError("segments of two encoders do not go together")
        found = self._join(pieces, output, whole)
        return Joined(found, whole.share)

    def help(self, turns: Turns) -> bool:
        """As `help_with_segments`."""
        segments = self._segments()
        mark = self._fingerprint(segments)
        while (number := turns.take(mark)) is not None:
            path, _ = self._made(segments[number], on_progress=turns.progress)
            key = self._cutting.shelf.keep(mark, number, path)
            if key is None:
                raise SluiceError("a segment can't be stored", code="storage_error")
            path.unlink()
            turns.finish(key)
            if turns.give_way():
                return True
        return False

    def _fingerprint(self, segments: Sequence[Segment]) -> str:
        return fingerprint(self._video, segments, self._cutting, self._job)

    def _segments(self) -> tuple[Segment, ...]:
        number = self._video.source
        pictures = self._pictures(
            self._job.sources[number],
            self._job.probes[number].start_time,
            stream=self._video.stream,
        )
        if pictures is None:
            raise _NotAsOneRunError("not every picture of the source has a time of its own")
        segments = plan_segments(pictures, length=self._cutting.seconds)
        if len(segments) == 1:
            raise _NotAsOneRunError("there is no key frame to cut at")
        return segments

    def _pieces(
        self,
        segments: Sequence[Segment],
        kept: Mapping[int, KeptSegment],
        mark: str,
        whole: WholeProgress,
    ) -> list[Piece]:
        """All segments: those of earlier runs, and the rest made now, by whoever has time."""
        line, pieces = self._cutting.line, dict[int, Piece]()
        for number, found in kept.items():
            piece = self._brought(segments[number], found)
            if piece is not None:
                pieces[number] = piece
                whole.kept(segments[number].frames, piece.path.stat().st_size)
        missing = {s.number: s.frames for s in segments if s.number not in pieces}
        if missing:
            line.offer(mark, missing)
            whole.begin()
        while len(pieces) < len(segments):
            turn = line.turn()
            if turn is None:
                self._wait(whole)
                continue
            segment = segments[turn.number]
            if turn.key is None:
                piece, key = self._own(segment, mark, whole)
            else:
                piece, key = self._brought(segment, segment_at(turn.key)), turn.key
            if piece is None:
                line.refuse(turn)
                continue
            pieces[segment.number] = piece
            line.have(turn, key)
            whole.ended(segment.frames, piece.path.stat().st_size)
        line.withdraw()
        return [pieces[segment.number] for segment in segments]

    def _wait(self, whole: WholeProgress) -> None:
        """Others are at all that is left."""
        whole.tell(0, 0)
        until = time.monotonic() + _WAIT
        while time.monotonic() < until:
            error = error_for(self._job.place.stop() or EndReason.EXITED)
            if error is not None:
                raise error
            if self._ends is not None and time.monotonic() > self._ends:
                raise SluiceError(code="hard_time_limit")
            time.sleep(_POLL)

    def _brought(self, segment: Segment, found: KeptSegment) -> Piece | None:
        """A segment that somebody else made; None when it is not what it should be."""
        local = self._cutting.shelf.bring(found, self._stack)
        if local is None:
            return None
        path = self._path(segment)
        path.unlink(missing_ok=True)
        path.symlink_to(local)
        try:
            return self._checked(segment, path)
        except _NotAsOneRunError as exc:
            log.warning("segment_unusable", key=found.key, reason=str(exc))
            path.unlink()
            return None

    def _own(self, segment: Segment, mark: str, whole: WholeProgress) -> tuple[Piece, str | None]:
        """A segment made now, and its key if it could be stored."""
        path, piece = self._made(segment, on_progress=whole.tell)
        key = self._cutting.shelf.keep(mark, segment.number, path)
        if key is not None:
            self._cutting.on_kept()
        return piece, key

    def _path(self, segment: Segment) -> Path:
        return self._job.folder / f"segment.{segment.number:05d}.mp4"

    def _made(
        self, segment: Segment, *, on_progress: Callable[[int, int], None]
    ) -> tuple[Path, Piece]:
        path = self._path(segment)
        part = path.with_suffix(".part")
        self._encode(segment, part, on_progress)
        piece = self._checked(segment, part)
        part.rename(path)
        log.info("segment_encoded", number=segment.number, frames=segment.frames)
        return path, replace(piece, path=path)

    def _encode(
        self, segment: Segment, part: Path, on_progress: Callable[[int, int], None]
    ) -> None:
        video, threads = self._video, self._job.threads
        reader = SegmentProgress(
            segment.frames, on_first=self._cutting.on_segment, on_progress=on_progress
        )
        argv = command_of(
            replace(
                self._job.plan,
                container=_SEGMENT,
                audio=(),
                video=replace(video, source=0, filters=(trim(segment), *video.filters)),
            ),
            source_words(self._job.sources[video.source], *_seek(segment), threads=threads),
            part,
            ffmpeg=self._job.tools.ffmpeg,
            threads=threads,
            extra=_MUXER_WORDS,
        )
        convert(
            argv,
            output=part,
            on_line=reader.feed,
            marker=lambda: reader.frames,
            place=self._place(),
        )

    def _checked(self, segment: Segment, path: Path) -> Piece:
        """Refuse a segment that does not hold the pictures that it should."""
        pictures = self._pictures(path, None, stream=0)
        if pictures is None or len(pictures.times) != segment.frames:
            count = len(pictures.times) if pictures else 0
            raise _NotAsOneRunError(
                f"segment {segment.number} has {count} pictures of {segment.frames}"
            )
        # A picture of no fixed rate may move to the encoder's next tick.
        slack = 2 * pictures.spacing + 0.001
        moved = (pictures.times[0] - segment.first, pictures.times[-1] - segment.last)
        if max(map(abs, moved)) > slack:
            raise _NotAsOneRunError(f"segment {segment.number} lies {moved[0]:.3f} s beside")
        return Piece(path, pictures)

    def _join(self, pieces: Sequence[Piece], output: Path, whole: WholeProgress) -> Probe:
        job = self._job
        self._cutting.on_join(sum(piece.path.stat().st_size for piece in pieces))
        script = job.folder / "segment.list"
        script.write_text(concat_list(pieces))
        reader = ProgressReader(job.plan.duration)
        argv = join_command(
            job.plan,
            script,
            job.sources,
            output,
            first=pieces[0].pictures.times[0],
            ffmpeg=job.tools.ffmpeg,
            threads=job.threads,
        )
        convert(
            argv,
            output=output,
            on_line=lambda line: whole.joining(reader.feed(line)),
            marker=lambda: reader.seconds,
            place=self._place(),
        )
        found = probe(output, ffprobe=job.tools.ffprobe, place=self._place())
        self._check_joined(found, pieces, output)
        return found

    def _check_joined(self, found: Probe, pieces: Sequence[Piece], output: Path) -> None:
        try:
            check_result(found, self._job.plan)
        except SluiceError as exc:
            raise _NotAsOneRunError(exc.message) from exc
        pictures = self._pictures(output, None, stream=found.videos[0].index)
        why = why_not_one_run(found, pictures, pieces, self._job.plan, self._job.probes)
        if why:
            raise _NotAsOneRunError(why)

    def _pictures(self, path: Path, start: float | None, *, stream: int) -> Pictures | None:
        reader = PacketReader(start or 0.0)
        read_through(
            packets_command(self._job.tools.ffprobe, path, stream=stream),
            on_line=reader.feed,
            place=self._place(),
        )
        return reader.pictures()

    def _place(self) -> Workplace:
        """For the next child, whose deadline is that of the whole."""
        if self._ends is None:
            return self._job.place
        return replace(self._job.place, deadline_s=max(0.0, self._ends - time.monotonic()))


def _seek(segment: Segment) -> list[str]:
    """Begin at a key frame before, and leave all times as they are in the source."""
    words = ["-copyts", "-start_at_zero"]
    if segment.start is not None:
        # What lies before the start goes by `trim`, which counts from the source's start, too.
        words += ["-noaccurate_seek", "-ss", f"{segment.start:.6f}"]
    return words


def trim(segment: Segment) -> str:
    """The filter that leaves the segment's pictures alone; in front of all others."""
    edges = (("start", segment.start), ("end", segment.end))
    return "trim=" + ":".join(f"{name}={at:.6f}" for name, at in edges if at is not None)
