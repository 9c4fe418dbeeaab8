"""ffmpeg's command line for a whole package: decoded once, encoded once per rendition. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice_transcoder.command import SILENCE, gap_words, source_words
from sluice_transcoder.hls.ladder import AUDIO_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sluice_transcoder.hls.ladder import LadderPlan, Pictures, Sound

#: Seconds of a segment, and between key frames: what Apple's authoring rules ask for.
SEGMENT_SECONDS = 6
KEY_FRAME_SECONDS = 2


def build_package_command(
    plan: LadderPlan, sources: Sequence[Path], folder: str, *, ffmpeg: Path, threads: int
) -> list[str]:
    """The command line that fills `folder` with `<name>.mp4` and `<name>.m3u8` of each rendition.

    One muxer for all of them shifts their times together, so that sound stays with its picture.

    Args:
        plan: what to make.
        sources: in the order that the plan counts them.
        folder: a plain name below the working folder; in a path of the operator's a `%` would be
            taken for a pattern.
        ffmpeg: the program.
        threads: at most so many for decoding, filtering and each encoder.

    """
    limit = ("-threads", str(threads))
    inputs = [word for source in sources for word in source_words(source, threads=threads)]
    return [
        str(ffmpeg),
        *("-hide_banner", "-nostdin", "-y", "-v", "error"),
        *("-nostats", "-progress", "pipe:1", "-filter_complex_threads", str(threads)),
        *gap_words(plan.longest_gap),
        *inputs,
        *(_video(plan.pictures, gap=plan.longest_gap) if plan.pictures else ()),
        *(_audio(plan.sound, gap=plan.longest_gap) if plan.sound else ()),
        *limit,
        *_muxer(plan, folder),
    ]


def _video(pictures: Pictures, *, gap: float) -> list[str]:
    encode = pictures.encode
    words = ["-filter_complex", _graph(pictures)]
    for number, rendition in enumerate(pictures.renditions):
        peak = f"{rendition.max_bitrate}k"
        words += ["-map", f"[v{number}]", f"-maxrate:v:{number}", peak]
        # A buffer of one second: segments stay close to the peak.
        words += [f"-bufsize:v:{number}", peak]
    return [
        *words,
        *("-c:v", encode.encoder, "-preset", encode.speed, "-crf", str(encode.crf)),
        # Key frames by the clock alone, so that all renditions can be cut at the same times.
        *("-sc_threshold", "0"),
        *("-force_key_frames:v", f"expr:gte(t,n_forced*{KEY_FRAME_SECONDS})"),
        # This muxer would get a constant rate, with pictures doubled and dropped. Where some are
        # missing, the last one stands: else playlists would leave the gap out of their lengths.
        *("-fps_mode:v", "cfr" if gap else "vfr"),
    ]


def _graph(pictures: Pictures) -> str:
    count = len(pictures.renditions)
    parts = "".join(f"[s{number}]" for number in range(count))
    shared = ",".join((*pictures.shared, f"split={count}"))
    chains = [
        f"[s{number}]{','.join(rendition.filters)}[v{number}]"
        for number, rendition in enumerate(pictures.renditions)
    ]
    return ";".join([f"[{pictures.source}:{pictures.stream}]{shared}{parts}", *chains])


def _audio(sound: Sound, *, gap: float) -> list[str]:
    track, encode = sound.track, sound.encode
    words = ["-map", f"{track.source}:{track.stream}", "-c:a", encode.encoder]
    words += ["-b:a", f"{encode.bitrate}k"]
    words += ["-af", SILENCE] if gap else []
    return words if track.channels is None else [*words, "-ac", str(track.channels)]


def _muxer(plan: LadderPlan, folder: str) -> list[str]:
    group = f",agroup:{AUDIO_NAME}" if plan.sound and plan.pictures else ""
    videos = plan.pictures.renditions if plan.pictures else ()
    streams = [f"v:{n}{group},name:{rendition.name}" for n, rendition in enumerate(videos)]
    if plan.sound:
        streams.append(f"a:0{group},name:{AUDIO_NAME}")
    return [
        *("-f", "hls", "-hls_time", str(SEGMENT_SECONDS), "-hls_playlist_type", "vod"),
        *("-hls_segment_type", "fmp4", "-hls_flags", "single_file+independent_segments"),
        *("-var_stream_map", " ".join(streams)),
        *("-hls_segment_filename", f"{folder}/%v.mp4", f"{folder}/%v.m3u8"),
    ]
