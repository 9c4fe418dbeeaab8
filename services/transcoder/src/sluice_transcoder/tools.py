"""Which ffmpeg there is, and what it can do."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_core.domain.errors import ConfigError
from sluice_transcoder.plan import ToneMap

if TYPE_CHECKING:
    from pathlib import Path

    from sluice_core.adapters.binaries import FfmpegTools

_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Tools:
    """The two programs and what this build can do."""

    ffmpeg: Path
    ffprobe: Path
    tone_map: ToneMap = ToneMap.NONE
    #: What ffmpeg calls itself: two builds may encode the same in two ways.
    version: str = ""


def inspect_tools(found: FfmpegTools) -> Tools:
    """Ask ffmpeg what it can do: once per process, some 20 ms.

    Raises:
        ConfigError: it does not run.

    """
    version = _ask(found.ffmpeg, "-version").partition("\n")[0]
    return Tools(found.ffmpeg, found.ffprobe, _tone_map(found.ffmpeg), version)


def _tone_map(ffmpeg: Path) -> ToneMap:
    filters = {
        line.split()[1] for line in _ask(ffmpeg, "-filters").splitlines() if " " in line.strip()
    }
    if {"zscale", "tonemap"} <= filters:
        return ToneMap.ZSCALE
    return ToneMap.SCALE if "out_transfer" in _ask(ffmpeg, "-h", "filter=scale") else ToneMap.NONE


def _ask(ffmpeg: Path, *question: str) -> str:
    try:
        return subprocess.run(  # noqa: S603  # our own program and words
            [ffmpeg, "-hide_banner", *question],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        ).stdout
    except (OSError, subprocess.SubprocessError) as exc:
        raise ConfigError(f"{ffmpeg} does not run: {exc}") from exc
