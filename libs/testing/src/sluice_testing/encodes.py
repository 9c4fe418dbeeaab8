"""Encodes that take their time, and what is in their results."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sluice_core.adapters.binaries import ffmpeg_tools

#: A file of the sample site, of pictures that are larger than the presets below allow.
LONG = "/mp4/long.mp4"
#: Seconds of it, and pictures in it.
LENGTH = 60.0
FRAMES = 1500

_PRESET = """
[{name}]
title = "{title}"
kind = "video"
format = "b"
max_height = {height}
containers = ["mp4"]
video_codecs = ["h264"]
audio_codecs = ["aac"]
video = {{ encoder = "libx264", crf = {crf}, speed = "{speed}" }}
audio = {{ encoder = "aac", bitrate = 64 }}
"""


def preset(name: str, title: str, *, height: int, crf: int, speed: str) -> str:
    """A preset for `SLUICE_PRESETS_FILE`."""
    return _PRESET.format(name=name, title=title, height=height, crf=crf, speed=speed)


def write_presets(folder: Path) -> Path:
    """A file of presets: `small` is soon done, `medium` takes some seconds, `slow` far longer."""
    path = folder / "presets.toml"
    path.write_text(
        preset("small", "Small pictures", height=90, crf=30, speed="veryfast")
        + preset("medium", "Pictures that take some seconds", height=160, crf=20, speed="medium")
        + preset("slow", "Pictures that take their time", height=160, crf=20, speed="placebo")
    )
    return path


def streams(path: Path) -> dict[str, dict[str, Any]]:
    """Kind of stream -> packets, duration and start of it, read through to the end."""
    ran = subprocess.run(  # noqa: S603  # our own command
        [
            *(ffmpeg_tools().ffprobe, "-v", "error", "-count_packets", "-of", "json"),
            *("-show_entries", "stream=codec_type,nb_read_packets,duration,start_time"),
            path,
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return {stream["codec_type"]: stream for stream in json.loads(ran.stdout)["streams"]}
