"""Real ffmpeg, confined as in production."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_transcoder.children import Workplace, probe
from sluice_transcoder.probe import Probe
from sluice_transcoder.tools import Tools, inspect_tools

ProbeFile = Callable[[Path], Probe]


@pytest.fixture(scope="session")
def tools() -> Tools:
    return inspect_tools(ffmpeg_tools())


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Workplace(scratch=scratch, deadline_s=120)


@pytest.fixture
def probe_file(tools: Tools, place: Workplace) -> ProbeFile:
    return lambda path: probe(path, ffprobe=tools.ffprobe, place=place)
