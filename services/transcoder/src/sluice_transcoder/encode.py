"""The segments of one encode, and the whole of them, made and looked at.

Each segment is encoded with the times that its pictures have in the whole, so that the encoder sees
what it sees in one run. Joined they are copied; the sound is made once, from its source, while they
are.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import EndReason, error_for
from sluice_transcoder.children import convert, probe, read_through
from sluice_transcoder.command import command_of, source_words
from sluice_transcoder.containers import Container
from sluice_transcoder.cut import PacketReader, packets_command, plan_segments
from sluice_transcoder.join import Piece, concat_list, join_command, why_not_one_run
from sluice_transcoder.progress import ProgressReader, SegmentProgress, WholeProgress
from sluice_transcoder.verify import check_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sluice_transcoder.children import Workplace
    from sluice_transcoder.cut import Pictures, Segment
    from sluice_transcoder.plan import Plan
    from sluice_transcoder.probe import Probe
    from sluice_transcoder.tools import Tools

log = structlog.get_logger(__name__)

#: How segments are made and named; another number makes older ones useless.
_FORMAT = 1

#: Encoders whose headers tell how many threads they had: with others, segments don't go together.
_TELL_THREADS = frozenset({"libx265"})

#: MP4 keeps each picture's time and duration; without an index in front, as nobody streams it.
_SEGMENT = Container("segment", "mp4", "video/mp4", None, None)

#: The encoder's times as they come, and the first of them exact: MP4 rounds it to milliseconds.
_MUXER_WORDS = ("-movie_timescale", "1000000")

#: Seconds between looks whether the run is to stop while it waits for others.
_POLL = 0.1


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


class NotAsOneRunError(Exception):
    """What was cut is not, or may not be, what one run gives."""


class Encoder:
    """Makes what one encode is cut into.

    Children raise as `children.convert` says; the deadline of `job.place` is that of all of them.

    Args:
        job: what it needs; its plan has pictures to encode.
        on_first: called when the first pictures of a segment are encoded.

    """

    def __init__(self, job: Job, *, on_first: Callable[[], None]) -> None:
        assert job.plan.video is not None  # noqa: S101  # what is cut are pictures
        self._job = job
        self._video = job.plan.video
        self._on_first = on_first
        deadline = job.place.deadline_s
        self._ends = None if deadline is None else time.monotonic() + deadline

    def segments(self, *, length: float) -> tuple[Segment, ...]:
        """How the pictures are cut.

        Args:
            length: seconds of a segment.

        Raises:
            NotAsOneRunError: they can't be.

        """
        number = self._video.source
        pictures = self._pictures(
            self._job.sources[number],
            self._job.probes[number].start_time,
            stream=self._video.stream,
        )
        if pictures is None:
            raise NotAsOneRunError("not every picture of the source has a time of its own")
        segments = plan_segments(pictures, length=length)
        if len(segments) == 1:
            raise NotAsOneRunError("there is no key frame to cut at")
        return segments

    def fingerprint(self, segments: Sequence[Segment], sources: Sequence[tuple[str, int]]) -> str:
        """What must be the same for a segment that somebody else made to be of use.

        Args:
            segments: all of them.
            sources: what the sources are called and how long.

        """
        video = self._video
        edges = [(segment.start, segment.end) for segment in segments]
        tells = video.encode is not None and video.encode.encoder in _TELL_THREADS
        threads = self._job.threads if tells else None
        version = self._job.tools.version
        words = repr((_FORMAT, version, list(sources), video, edges, threads))
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def path(self, segment: Segment) -> Path:
        """Where a finished segment lies on this machine."""
        return self._job.folder / f"segment.{segment.number:05d}.mp4"

    def clear(self) -> None:
        """Remove what lies there."""
        for path in self._job.folder.glob("segment.*"):
            path.unlink(missing_ok=True)

    def make(self, segment: Segment, *, on_progress: Callable[[int, int], None]) -> Piece:
        """Encode a segment.

        Args:
            segment: which.
            on_progress: told pictures and bytes so far.

        Raises:
            NotAsOneRunError: as `check`.

        """
        path = self.path(segment)
        part = path.with_suffix(".part")
        self._encode(segment, part, on_progress)
        piece = self.check(segment, part)
        part.rename(path)
        log.info("segment_encoded", number=segment.number, frames=segment.frames)
        return replace(piece, path=path)

    def _encode(
        self, segment: Segment, part: Path, on_progress: Callable[[int, int], None]
    ) -> None:
        video, threads = self._video, self._job.threads
        reader = SegmentProgress(segment.frames, on_first=self._on_first, on_progress=on_progress)
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

    def check(self, segment: Segment, path: Path) -> Piece:
        """What is in a file that is to be a segment.

        Raises:
            NotAsOneRunError: it does not hold the pictures that it should.

        """
        pictures = self._pictures(path, None, stream=0)
        if pictures is None or len(pictures.times) != segment.frames:
            count = len(pictures.times) if pictures else 0
            raise NotAsOneRunError(
                f"segment {segment.number} has {count} pictures of {segment.frames}"
            )
        # A picture of no fixed rate may move to the encoder's next tick.
        slack = 2 * pictures.spacing + 0.001
        moved = (pictures.times[0] - segment.first, pictures.times[-1] - segment.last)
        if max(map(abs, moved)) > slack:
            raise NotAsOneRunError(f"segment {segment.number} lies {moved[0]:.3f} s beside")
        return Piece(path, pictures)

    def join(self, pieces: Sequence[Piece], output: Path, whole: WholeProgress) -> Probe:
        """Make one file of all segments and of the source's sound, and look at it.

        Raises:
            NotAsOneRunError: it is not what one run gives.

        """
        job = self._job
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
            raise NotAsOneRunError(exc.message) from exc
        pictures = self._pictures(output, None, stream=found.videos[0].index)
        why = why_not_one_run(found, pictures, pieces, self._job.plan, self._job.probes)
        if why:
            raise NotAsOneRunError(why)

    def wait(self, seconds: float) -> None:
        """Let others work meanwhile; raises as soon as this run is to stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            error = error_for(self._job.place.stop() or EndReason.EXITED)
            if error is not None:
                raise error
            if self._ends is not None and time.monotonic() > self._ends:
                raise SluiceError(code="hard_time_limit")
            time.sleep(_POLL)

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
