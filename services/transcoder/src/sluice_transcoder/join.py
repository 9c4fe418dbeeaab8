"""Segments become one file again, with the sound of the source. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sluice_transcoder.command import command_of, source_words
from sluice_transcoder.probe import file_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sluice_transcoder.cut import Pictures
    from sluice_transcoder.plan import Plan
    from sluice_transcoder.probe import Probe, Stream

#: Matroska counts milliseconds, and rounds.
_ROUNDED = 0.002

#: What sound may move against the pictures: less than anybody sees (ITU-R BT.1359 says 45 ms).
_SYNC = 0.04


@dataclass(frozen=True, slots=True)
class Piece:
    """An encoded segment, and its pictures with their times in the whole."""

    path: Path
    pictures: Pictures


def concat_list(pieces: Sequence[Piece]) -> str:
    """A script for ffmpeg's concat demuxer, to lie in the pieces' own folder.

    Each piece but the last is said to last until the first picture of the next.
    """
    firsts = [round(piece.pictures.times[0], 6) for piece in pieces]
    lengths = [f"duration {after - before:.6f}\n" for before, after in pairwise(firsts)]
    files = [f"file '{piece.path.name}'\n" for piece in pieces]
    return "ffconcat version 1.0\n" + "".join(
        file + length for file, length in zip(files, [*lengths, ""], strict=True)
    )


def join_command(
    plan: Plan,
    script: Path,
    sources: Sequence[Path],
    output: Path,
    *,
    first: float,
    ffmpeg: Path,
    threads: int,
) -> list[str]:
    """The command line that copies all pieces to `output`, with the sound that the plan wants.

    Args:
        plan: of the whole.
        script: as `concat_list` writes it.
        sources: in the order that the plan counts them.
        output: as in `build_command`.
        first: when the first picture is shown; the concat demuxer begins at 0.
        ffmpeg: the program.
        threads: at most so many for each part of ffmpeg.

    """
    assert plan.video is not None  # noqa: S101  # what was cut were pictures
    used = sorted({track.source for track in plan.audio})
    audio = tuple(replace(track, source=1 + used.index(track.source)) for track in plan.audio)
    video = replace(plan.video, source=0, stream=0, encode=None, filters=())
    return command_of(
        replace(plan, video=video, audio=audio),
        [
            # The list is our own and names our own files beside it, nothing else.
            *("-protocol_whitelist", "file", "-format_whitelist", "concat,mov"),
            *("-f", "concat", "-safe", "0", "-auto_convert", "0"),
            *("-itsoffset", f"{first:.6f}", "-i", file_url(script)),
            *(word for n in used for word in source_words(sources[n], threads=threads)),
        ],
        output,
        ffmpeg=ffmpeg,
        threads=threads,
    )


def why_not_one_run(
    found: Probe,
    pictures: Pictures | None,
    pieces: Sequence[Piece],
    plan: Plan,
    probes: Sequence[Probe],
) -> str:
    """In which way the joined file differs from what one run gives; empty when it does not.

    Args:
        found: the joined file.
        pictures: of its video stream.
        pieces: that it was joined of.
        plan: of the whole.
        probes: of the sources.

    """
    wanted = [time for piece in pieces for time in piece.pictures.times]
    if pictures is None or len(pictures.times) != len(wanted):
        count = len(pictures.times) if pictures else 0
        return f"{count} pictures of {len(wanted)} are in the joined file"
    moved = max(
        abs((got - pictures.times[0]) - (time - wanted[0]))
        for got, time in zip(pictures.times, wanted, strict=True)
    )
    if moved > _ROUNDED:
        return f"a picture of the joined file lies {moved:.3f} s beside"
    if not plan.audio:
        return ""
    lag = _lag(found, found.videos[0], found, found.audios[0]) - _planned_lag(plan, probes)
    if abs(lag) > _SYNC + pictures.spacing:
        return f"sound and pictures are {lag:.3f} s apart"
    return ""


def _planned_lag(plan: Plan, probes: Sequence[Probe]) -> float:
    assert plan.video is not None  # noqa: S101  # what was cut were pictures
    seen, heard = probes[plan.video.source], probes[plan.audio[0].source]
    [video] = [s for s in seen.streams if s.index == plan.video.stream]
    [audio] = [s for s in heard.streams if s.index == plan.audio[0].stream]
    return _lag(seen, video, heard, audio)


def _lag(seen: Probe, video: Stream, heard: Probe, audio: Stream) -> float:
    """Seconds that the pictures begin after the sound, each counted from its own file's start."""
    return _begin(seen, video) - _begin(heard, audio)


def _begin(found: Probe, stream: Stream) -> float:
    start = found.start_time or 0.0
    return (start if stream.start_time is None else stream.start_time) - start
