"""Which releases of what matters a process works with."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from sluice_core.adapters.binaries import ffmpeg_path
from sluice_core.domain.errors import ConfigError

#: Seconds that ffmpeg gets to say its name.
_TIMEOUT = 10.0


@cache
def of_packages() -> dict[str, str]:
    """`sluice`, and `yt-dlp` where it is installed."""
    found = {}
    for name, package in (("sluice", "sluice-core"), ("yt-dlp", "yt-dlp")):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def of_ffmpeg() -> str | None:
    """The version that ffmpeg gives itself; None when there is none. Asked once, some 20 ms."""
    try:
        said = subprocess.run(  # noqa: S603  # our own program and words
            [ffmpeg_path(), "-version"],
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
