"""Fixtures of real media: files of the sample site, and clips of a test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import ffmpeg_path
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
        command = [ffmpeg_path(), "-v", "error", "-nostdin", "-y", *args, path]
        subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)  # noqa: S603  # ours
        return path

    return clip
