from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluice_core.domain.errors import ConfigError
from sluice_core.domain.presets import PresetKind, Rung, load_presets

if TYPE_CHECKING:
    from pathlib import Path

CONTRACT = {
    *("best", "original", "2160p", "1080p", "720p", "480p"),
    *("audio-m4a", "audio-mp3", "audio-opus", "hls"),
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

LADDER = """
[steps]
title = "Steps"
kind = "video"
format = "b"
containers = ["mp4"]
video_codecs = ["h264"]
audio_codecs = ["aac"]
video = { encoder = "libx264", crf = 23, speed = "fast" }
audio = { encoder = "aac", bitrate = 96 }
ladder = [{ height = 720, max_bitrate = 2000 }, { height = 360, max_bitrate = 700 }]
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


def test_the_ladder_of_hls_is_h264_and_aac_from_1080_down() -> None:
    preset = load_presets()["hls"]
    assert [rung.height for rung in preset.ladder] == [1080, 720, 480, 360, 240]
    peaks = [rung.max_bitrate for rung in preset.ladder]
    assert peaks == sorted(peaks, reverse=True)
    assert preset.video is not None
    assert preset.audio is not None
    assert (preset.video.codec, preset.audio.codec) == ("h264", "aac")
    assert not any(other.ladder for other in load_presets().values() if other.name != "hls")


def test_an_operator_has_a_ladder_of_their_own(tmp_path: Path) -> None:
    steps = load_presets(extra(tmp_path, LADDER))["steps"]
    assert steps.ladder == (Rung(720, 2000), Rung(360, 700))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[{", "[] #", "ladder must be a list of 1 to 8 rungs"),
        ("[{ height", '"x" # [{ height', "ladder must be a list"),
        ("[{", "[7, {", "ladder, rung 1: a table of settings is needed"),
        ("height = 360, ", "", "ladder, rung 2: height is missing"),
        (", max_bitrate = 700", "", "ladder, rung 2: max_bitrate is missing"),
        ("height = 360", "height = 360, crf = 1", "ladder, rung 2: unknown setting crf"),
        ("height = 360", "height = 361", "ladder, rung 2: height must be even, not 361"),
        ("height = 360", "height = 8000", "rung 2: height must be a whole number from 16 to 4320"),
        ("height = 360", 'height = "360"', "rung 2: height must be a whole number"),
        ("max_bitrate = 700", "max_bitrate = 1", "max_bitrate must be a whole number from 32"),
        ("height = 360", "height = 720", "from the largest height to the smallest, each once"),
        ("height = 360", "height = 1080", "from the largest height to the smallest"),
        ('"libx264"', '"libx265"', "video_codecs must hold hevc"),
        ("video = {", "#", "video is needed"),
        ('["mp4"]', '["mkv"]', r'containers must be \["mp4"\] beside a ladder'),
        ("ladder =", "max_height = 720\nladder =", "max_height is told by the first rung"),
    ],
)
def test_a_bad_ladder_is_one_sentence_that_names_the_key(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in LADDER
    with pytest.raises(ConfigError, match=words) as caught:
        load_presets(extra(tmp_path, LADDER.replace(old, new, 1)))
    assert "preset steps: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("codec", "encoder", "words"),
    [
        ("h264", "libx264", "ladder needs video with encoder libx264"),
        ("aac", "aac", "ladder needs audio with encoder aac"),
    ],
)
def test_a_ladder_is_h264_and_aac(tmp_path: Path, codec: str, encoder: str, words: str) -> None:
    text = LADDER.replace(f'["{codec}"]', '["*"]')
    other = {"libx264": "libx265", "aac": "libopus"}[encoder]
    text = text.replace(f'encoder = "{encoder}"', f'encoder = "{other}"')
    with pytest.raises(ConfigError, match=words):
        load_presets(extra(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml can't be read"):
        load_presets(tmp_path / "nowhere.toml")
