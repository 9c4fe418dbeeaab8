"""ffmpeg's command line from a plan. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from sluice_transcoder.probe import file_url, input_guard

if TYPE_CHECKING:
    from pathlib import Path

    from sluice_core.domain.presets import VideoEncode
    from sluice_transcoder.plan import AudioPlan, Plan, VideoPlan


def build_command(
    plan: Plan, sources: Sequence[Path], output: Path, *, ffmpeg: Path, threads: int
) -> list[str]:
    """The command line that makes `output`; the plan must not be `keep`.

    Args:
        plan: what to do.
        sources: in the order that the plan counts them.
        output: overwritten when there; its name tells ffmpeg nothing.
        ffmpeg: the program.
        threads: at most so many for decoding, filtering and encoding each.

    """
    inputs = [word for source in sources for word in source_words(source, threads=threads)]
    return command_of(plan, inputs, output, ffmpeg=ffmpeg, threads=threads)


def source_words(source: Path, *options: str, threads: int) -> list[str]:
    """One input, behind its options."""
    return [*input_guard(), "-threads", str(threads), *options, "-i", file_url(source)]


def command_of(
    plan: Plan,
    inputs: Sequence[str],
    output: Path,
    *,
    ffmpeg: Path,
    threads: int,
    extra: Sequence[str] = (),
) -> list[str]:
    """As `build_command`, for inputs that are spelled already and `extra` words for the muxer."""
    limit = ("-threads", str(threads))
    return [
        str(ffmpeg),
        *("-hide_banner", "-nostdin", "-y", "-v", "error"),
        *("-nostats", "-progress", "pipe:1", "-filter_threads", str(threads)),
        *gap_words(plan.longest_gap),
        *inputs,
        *_video(plan),
        *(
            word
            for number, track in enumerate(plan.audio)
            for word in _audio(number, track, gap=plan.longest_gap)
        ),
        *limit,
        *extra,
        *_muxer(plan),
        file_url(output),
    ]


def gap_words(longest: float) -> list[str]:
    """Options in front of all inputs that leave a gap of so many seconds a gap.

    From a jump of 10 s on ffmpeg takes it for a clock that was set anew, and closes it: of one of
    two sources, that would move the pictures against the sound.
    """
    return ["-dts_delta_threshold", f"{longest + 10:.3f}"] if longest else []


#: Silence where sound is missing: else what follows would come too early.
SILENCE = "aresample=async=1"


def _video(plan: Plan) -> list[str]:
    video = plan.video
    if video is None:
        return ["-vn"]
    words = ["-map", f"{video.source}:{video.stream}"]
    if video.encode is None:
        words += ["-c:v", "copy"]
    else:
        words += _encode_video(video, video.encode)
    # Players of Apple take HEVC in MP4 by this tag alone.
    if video.codec == "hevc" and plan.container.indexed:
        words += ["-tag:v", "hvc1"]
    return words


def _encode_video(video: VideoPlan, encode: VideoEncode) -> list[str]:
    options = _SPEED_OPTIONS[encode.encoder](encode)
    filters = ",".join(video.filters)
    return ["-c:v", encode.encoder, "-crf", str(encode.crf), *options, "-vf", filters]


#: How each encoder spells its speed, and what it needs for constant quality.
_SPEED_OPTIONS: Mapping[str, Callable[[VideoEncode], Sequence[str]]] = MappingProxyType(
    {
        "libx264": lambda encode: ("-preset", encode.speed),
        "libx265": lambda encode: ("-preset", encode.speed, "-x265-params", "log-level=error"),
        "libvpx-vp9": lambda encode: ("-b:v", "0", "-row-mt", "1", "-cpu-used", encode.speed),
        "libsvtav1": lambda encode: ("-preset", encode.speed),
    }
)


def _audio(number: int, track: AudioPlan, *, gap: float) -> list[str]:
    words = ["-map", f"{track.source}:{track.stream}"]
    if track.encode is None:
        return [*words, f"-c:a:{number}", "copy"]
    words += [f"-c:a:{number}", track.encode.encoder]
    words += [f"-b:a:{number}", f"{track.encode.bitrate}k"]
    words += [f"-filter:a:{number}", SILENCE] if gap else []
    return words if track.channels is None else [*words, f"-ac:a:{number}", str(track.channels)]


def _muxer(plan: Plan) -> list[str]:
    index_in_front = ["-movflags", "+faststart"] if plan.container.indexed else []
    return [*index_in_front, "-f", plan.container.muxer]
