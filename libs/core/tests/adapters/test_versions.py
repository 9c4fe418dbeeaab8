from __future__ import annotations

from pathlib import Path

import pytest

from sluice_core.adapters import binaries, versions


def test_the_ytdlp_that_is_told_is_the_one_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "own"
    for name, content in (
        ("yt_dlp/version.py", ""),
        ("yt_dlp-9999.1.1.dist-info/METADATA", "Name: yt-dlp\nVersion: 9999.1.1\n"),
    ):
        (own / name).parent.mkdir(parents=True)
        (own / name).write_text(content)
    for setting in (own, Path("~/own")):
        assert binaries.ytdlp_folder(setting) == own
        assert versions.of_packages(setting)["yt-dlp"] == "9999.1.1"
    assert versions.of_packages().get("yt-dlp") != "9999.1.1"
