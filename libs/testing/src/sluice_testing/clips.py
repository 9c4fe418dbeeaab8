"""Fixtures of real media: files of the sample site, and clips of a test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.site.media import MediaCache, default_cache_dir, sample_ffmpeg

Media = Callable[[str], Path]
Make = Callable[..., Path]


@pytest.fixture(scope="session")
def media() -> Media:
    """A sample file by its path on the sample site, e.g. `/mp4/plain.mp4`."""
    cache = MediaCache(default_cache_dir(), ffmpeg=sample_ffmpeg())

    def find(path: str) -> Path:
        file = cache.file(path)
        if file is None:
            raise LookupError(path)
        return file

    return find


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A clip of the test's own: `make("name.mkv", *ffmpeg_arguments)`."""

    def clip(name: str, *args: str | Path) -> Path:
        path = tmp_path / name
        command = [ffmpeg_tools().ffmpeg, "-v", "error", "-nostdin", "-y", *args, path]
        subprocess.run(command, check=True, timeout=120, stdin=subprocess.DEVNULL)  # noqa: S603  # ours
        return path

    return clip


def picture_times(path: Path) -> list[float]:
    """When each picture of a file is shown, in seconds, in order."""
    words = ["-select_streams", "v:0", "-show_entries", "packet=pts_time", "-of", "csv=p=0"]
    ran = subprocess.run(  # noqa: S603  # our own program and words
        [ffmpeg_tools().ffprobe, "-v", "error", *words, path],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return sorted(float(line.strip(",")) for line in ran.stdout.split())
