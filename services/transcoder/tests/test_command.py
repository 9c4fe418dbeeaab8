from __future__ import annotations

from pathlib import Path

from sluice_core.domain.presets import AudioEncode, VideoEncode
from sluice_transcoder.command import build_command
from sluice_transcoder.containers import CONTAINERS
from sluice_transcoder.plan import Action, AudioPlan, Plan, VideoPlan
from sluice_transcoder.probe import PROTOCOLS

X264 = VideoEncode(encoder="libx264", crf=21, speed="veryfast")
VP9 = VideoEncode(encoder="libvpx-vp9", crf=33, speed="4")


def command(
    video: VideoPlan | None, *audio: AudioPlan, container: str = "mp4", sources: int = 1
) -> list[str]:
    plan = Plan(
        action=Action.ENCODE,
        container=CONTAINERS[container],
        video=video,
        audio=audio,
        duration=1.0,
        kind="video",
    )
    names = [Path(f"-s{number}.mp4") for number in range(sources)]
    return build_command(plan, names, Path("/o/p.part"), ffmpeg=Path("/bin/ffmpeg"), threads=3)


def text(words: list[str]) -> str:
    return " ".join(words)


COPY = VideoPlan(source=0, stream=0, codec="h264")


def test_every_input_is_local_and_can_be_neither_option_nor_protocol() -> None:
    words = command(COPY, AudioPlan(source=1, stream=0, codec="aac"), sources=2)
    inputs = [place for place, word in enumerate(words) if word == "-i"]
    assert len(inputs) == 2
    for number, place in enumerate(inputs):
        assert words[place + 1] == f"file:{Path.cwd()}/-s{number}.mp4"
    assert words.count("-protocol_whitelist") == words.count("-format_whitelist") == 2
    assert words[words.index("-protocol_whitelist") + 1] == PROTOCOLS
    assert words[-1] == "file:/o/p.part"


def test_it_never_asks_and_always_reports() -> None:
    words = text(command(COPY))
    assert words.startswith("/bin/ffmpeg -hide_banner -nostdin -y -v error -nostats")
    assert "-progress pipe:1" in words


def test_a_copy_encodes_nothing_and_puts_the_index_in_front() -> None:
    words = text(command(COPY, AudioPlan(source=0, stream=2, codec="aac")))
    assert "-map 0:0 -c:v copy -map 0:2 -c:a:0 copy" in words
    assert "-movflags +faststart -f mp4" in words
    assert "-crf" not in words


def test_encoding() -> None:
    pictures = VideoPlan(
        source=0, stream=0, codec="h264", encode=X264, filters=("scale=854:480", "format=yuv420p")
    )
    sound = AudioPlan(
        source=0,
        stream=1,
        codec="aac",
        encode=AudioEncode(encoder="aac", bitrate=160),
        channels=2,
    )
    words = text(command(pictures, sound))
    assert "-c:v libx264 -crf 21 -preset veryfast -vf scale=854:480,format=yuv420p" in words
    assert "-map 0:1 -c:a:0 aac -b:a:0 160k -ac:a:0 2" in words


def test_threads_are_limited_in_every_part() -> None:
    words = command(COPY, sources=2)
    assert words.count("-threads") == 3
    assert [words[i + 1] for i, word in enumerate(words) if "threads" in word] == ["3"] * 4


def test_other_encoders_and_containers() -> None:
    pictures = VideoPlan(source=0, stream=0, codec="vp9", encode=VP9, filters=("format=yuv420p",))
    words = text(command(pictures, container="webm"))
    assert "-c:v libvpx-vp9 -crf 33 -b:v 0 -row-mt 1 -cpu-used 4" in words
    assert words.endswith("-f webm file:/o/p.part")
    assert "faststart" not in words


def test_hevc_in_mp4_carries_the_tag_that_all_players_take() -> None:
    hevc = VideoPlan(source=0, stream=0, codec="hevc")
    assert "-tag:v hvc1" in text(command(hevc))
    assert "-tag:v" not in text(command(hevc, container="mkv"))


def test_sound_alone() -> None:
    words = text(command(None, AudioPlan(source=0, stream=1, codec="aac"), container="m4a"))
    assert "-vn -map 0:1 -c:a:0 copy" in words
    assert "-movflags +faststart -f ipod" in words
