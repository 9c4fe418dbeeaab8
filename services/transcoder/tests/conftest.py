"""Real ffmpeg on real clips: those of the sample site, and some cut or bent for one test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.site.media import MediaCache, default_cache_dir, sample_ffmpeg
from sluice_transcoder.children import Workplace, probe
from sluice_transcoder.probe import Probe
from sluice_transcoder.tools import Tools, inspect_tools

Media = Callable[[str], Path]
Make = Callable[..., Path]
ProbeFile = Callable[[Path], Probe]


@pytest.fixture(scope="session")
def tools() -> Tools:
    return inspect_tools(ffmpeg_tools())


@pytest.fixture(scope="session")
def media() -> Media:
    """A sample file by its path on the sample site, e.g. `/mp4/plain.mp4`."""
    cache = MediaCache(default_cache_dir(), ffmpeg=sample_ffmpeg())

    def find(path: str) -> Path:
        file = cache.file(path)
        assert file is not None, path
        return file

    return find


@pytest.fixture
def make(tools: Tools, tmp_path: Path) -> Make:
    """A clip of the test's own: `make("name.mkv", *ffmpeg_arguments)`."""

    def clip(name: str, *args: str | Path) -> Path:
        path = tmp_path / name
        command = [tools.ffmpeg, "-v", "error", "-nostdin", "-y", *args, path]
        subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)
        return path

    return clip


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Workplace(scratch=scratch, deadline_s=120)


@pytest.fixture
def probe_file(tools: Tools, place: Workplace) -> ProbeFile:
    return lambda path: probe(path, ffprobe=tools.ffprobe, place=place)
