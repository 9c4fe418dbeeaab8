from __future__ import annotations

import pytest

from sluice_cli.client.save import MAX_NAME, numbered, safe_name


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("视频 🎬.mp4", "视频 🎬.mp4"),
        ("👨\u200d👩\u200d👧.mp4", "👨\u200d👩\u200d👧.mp4"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("a\\b\x00c\nd.mp4", "a_b_c_d.mp4"),
        ("..", "file"),
        ("", "file"),
    ],
)
def test_a_name_is_one_component(given: str, kept: str) -> None:
    assert safe_name(given) == kept


@pytest.mark.parametrize(
    ("name", "number", "result"),
    [
        ("a.mp4", 1, "a.mp4"),
        ("a.mp4", 2, "a (2).mp4"),
        ("noext", 3, "noext (3)"),
        (".hidden", 2, ".hidden (2)"),
        ("Who? A sentence. And more of it", 2, "Who? A sentence. And more of it (2)"),
    ],
)
def test_numbers_stand_before_the_suffix(name: str, number: int, result: str) -> None:
    assert numbered(name, number) == result


def test_long_names_are_cut_in_bytes_and_keep_their_suffix() -> None:
    cut = numbered("ж" * 200 + ".mp4", 12)
    assert len(cut.encode()) <= MAX_NAME
    assert cut.endswith("ж (12).mp4")
