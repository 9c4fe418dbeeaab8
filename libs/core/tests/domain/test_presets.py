from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluice_core.domain.errors import ConfigError
from sluice_core.domain.presets import PresetKind, load_presets

if TYPE_CHECKING:
    from pathlib import Path

CONTRACT = {
    *("best", "original", "2160p", "1080p", "720p", "480p"),
    *("audio-m4a", "audio-mp3", "audio-opus"),
}

MINE = """
[tiny]
title = "Tiny"
kind = "video"
format = "b"
max_height = 240
containers = ["webm"]
video_codecs = ["vp9"]
audio_codecs = ["opus"]
video = { encoder = "libvpx-vp9", crf = 33, speed = "4" }
audio = { encoder = "libopus", bitrate = 64 }
"""


def extra(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_names_of_the_contract_are_built_in() -> None:
    assert set(load_presets()) == CONTRACT


@pytest.mark.parametrize("height", [2160, 1080, 720, 480])
def test_named_heights_are_h264_and_aac_in_fast_starting_mp4(height: int) -> None:
    preset = load_presets()[f"{height}p"]
    assert preset.max_height == height
    assert preset.containers[0] == "mp4"
    assert (preset.video_codecs, preset.audio_codecs) == (("h264",), ("aac",))
    assert preset.fast_start
    assert preset.format_sort[0] == f"res:{height}"


def test_an_operator_adds_one(tmp_path: Path) -> None:
    presets = load_presets(extra(tmp_path, MINE))
    assert set(presets) == CONTRACT | {"tiny"}
    tiny = presets["tiny"]
    assert tiny.kind is PresetKind.VIDEO
    assert tiny.video is not None
    assert tiny.video.codec == "vp9"
    assert tiny.accepts_audio("opus")
    assert not tiny.accepts_audio("aac")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[tiny]", "[best]", "preset best is built in"),
        ("[tiny]", '["Tiny one"]', "small letters"),
        ("[tiny]", "tiny", "is not TOML"),
        ('title = "Tiny"', "", "title is missing"),
        ('title = "Tiny"', "title = 3", "title must be a text"),
        ('kind = "video"', 'kind = "film"', "kind must be one of video, audio, as-served"),
        ('kind = "video"', 'kind = "audio"', "has no video"),
        ('format = "b"', 'format = "b"\ncolour = "red"', "unknown setting colour"),
        ("max_height = 240", "max_height = true", "max_height must be a whole number"),
        ("max_height = 240", "max_height = 99999", "from 16 to 4320"),
        ('["webm"]', '["exe"]', "containers must be of .* not exe"),
        ('["webm"]', "[]", "containers must name at least one"),
        ('["webm"]', '"webm"', "containers must be a list"),
        ('"libvpx-vp9"', '"rm -rf"', "encoder must be one of libx264"),
        ("crf = 33", "crf = true", "crf must be a whole number"),
        ("crf = 33", "crf = 64", "crf must be a whole number from 0 to 63"),
        ('["vp9"]', '["h264"]', "video_codecs must hold vp9"),
        ('["opus"]', '["aac"]', "audio_codecs must hold opus"),
        ("audio = {", "#", "audio is needed"),
        ("video = {", "#", "video is needed"),
        ("bitrate = 64", "bitrate = 64, extra = 1", "unknown setting extra"),
        ("bitrate = 64", "", "is not TOML|bitrate is missing"),
    ],
)
def test_a_fault_is_one_sentence_that_names_the_file(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in MINE
    path = extra(tmp_path, MINE.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        load_presets(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml can't be read"):
        load_presets(tmp_path / "nowhere.toml")
