"""Which releases of what matters a process works with."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.domain.errors import ConfigError

#: Seconds that ffmpeg gets to say its name.
_TIMEOUT = 10.0


@cache
def of_packages(ytdlp: Path | None = None) -> dict[str, str]:
    """`sluice`, and `yt-dlp` where there is one.

    Args:
        ytdlp: the folder whose yt-dlp stands before the installed one.

    """
    places = {"sluice": ("sluice-core", None), "yt-dlp": ("yt-dlp", ytdlp)}
    found = {name: _installed(package, place) for name, (package, place) in places.items()}
    return {name: version for name, version in found.items() if version}


def _installed(package: str, place: Path | None) -> str | None:
    path = sys.path if place is None else [str(place.expanduser()), *sys.path]
    return next((found.version for found in distributions(name=package, path=path)), None)


@cache
def of_ffmpeg() -> str | None:
    """The version that ffmpeg gives itself; None when there is none. Asked once, some 20 ms."""
    try:
        said = subprocess.run(  # noqa: S603  # our own program and words
            [ffmpeg_tools().ffmpeg, "-version"],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        ).stdout
    except (ConfigError, OSError, subprocess.SubprocessError):
        return None
    words = said.split()
    # "ffmpeg version 7.1 Copyright …"
    return words[2][:64] if words[:2] == ["ffmpeg", "version"] and len(words) > 2 else None  # noqa: PLR2004
