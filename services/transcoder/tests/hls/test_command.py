from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sluice_core.domain.presets import AudioEncode, VideoEncode
from sluice_transcoder.hls.command import build_package_command
from sluice_transcoder.hls.ladder import LadderPlan, Pictures, Sound, VideoRendition
from sluice_transcoder.plan import AudioPlan

AAC = AudioEncode(encoder="aac", bitrate=128)
LARGE = VideoRendition(
    name="360p", width=640, height=360, max_bitrate=800, filters=("format=yuv420p",)
)
SMALL = VideoRendition(
    name="240p", width=426, height=240, max_bitrate=400, filters=("scale=426:240", "format=yuv420p")
)
PICTURES = Pictures(
    source=0,
    stream=2,
    encode=VideoEncode(encoder="libx264", crf=22, speed="veryfast"),
    shared=("bwdif",),
    renditions=(LARGE, SMALL),
    seconds=1.0,
)
SOUND = Sound(
    track=AudioPlan(source=1, stream=0, codec="aac", encode=AAC, channels=2),
    encode=AAC,
    seconds=1.0,
)
BOTH = LadderPlan(pictures=PICTURES, sound=SOUND, duration=1.0)


def words(plan: LadderPlan = BOTH) -> list[str]:
    names = [Path("-s0.mp4"), Path("/a/s1.mp4")]
    return build_package_command(plan, names, "part", ffmpeg=Path("/bin/ffmpeg"), threads=3)


def text(plan: LadderPlan = BOTH) -> str:
    return " ".join(words(plan))


def test_pictures_are_decoded_once_and_encoded_once_per_rendition() -> None:
    made = words()
    assert made.count("-i") == 2
    assert made[made.index("-filter_complex") + 1] == (
        "[0:2]bwdif,split=2[s0][s1];[s0]format=yuv420p[v0];[s1]scale=426:240,format=yuv420p[v1]"
    )
    assert "-map [v0] -maxrate:v:0 800k -bufsize:v:0 800k" in text()
    assert "-map [v1] -maxrate:v:1 400k -bufsize:v:1 400k" in text()
    assert "-c:v libx264 -preset veryfast -crf 22 -sc_threshold 0" in text()
    assert "-map 1:0 -c:a aac -b:a 128k -ac 2" in text()


def test_key_frames_are_told_by_the_clock() -> None:
    assert "-force_key_frames:v expr:gte(t,n_forced*2)" in text()
    assert "-hls_time 6" in text()


def test_one_muxer_writes_all_files_by_name() -> None:
    made = words()
    assert made.count("-f") == 1
    assert made[made.index("-var_stream_map") + 1] == (
        "v:0,agroup:audio,name:360p v:1,agroup:audio,name:240p a:0,agroup:audio,name:audio"
    )
    assert made[-2:] == ["part/%v.mp4", "part/%v.m3u8"]


def test_without_sound_and_without_pictures() -> None:
    silent = words(replace(BOTH, sound=None))
    assert silent[silent.index("-var_stream_map") + 1] == "v:0,name:360p v:1,name:240p"
    assert "-c:a" not in silent
    blind = words(replace(BOTH, pictures=None))
    assert blind[blind.index("-var_stream_map") + 1] == "a:0,name:audio"
    assert "-filter_complex" not in blind


def test_inputs_are_local_and_threads_are_limited() -> None:
    made = words()
    inputs = [made[at + 1] for at, word in enumerate(made) if word == "-i"]
    assert inputs == [f"file:{Path.cwd()}/-s0.mp4", "file:/a/s1.mp4"]
    assert made.count("-protocol_whitelist") == made.count("-format_whitelist") == 2
    assert [made[at + 1] for at, word in enumerate(made) if "threads" in word] == ["3"] * 4
