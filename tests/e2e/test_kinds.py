"""Every kind of link that the sample site has, through the whole system."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.site.catalog import samples

FFPROBE = ffmpeg_tools().ffprobe

SINGLE = [s for s in samples() if s.expect.error is None and s.expect.entries == 1]
MANY = [s for s in samples() if s.expect.error is None and s.expect.entries > 1]
WRONG = [s for s in samples() if s.expect.error is not None]


def probe(data: bytes) -> dict:
    """ffprobe's view of a file."""
    argv = [
        FFPROBE,
        "-v",
        "error",
        "-of",
        "json",
        "-show_format",
        "-show_streams",
        "-",
    ]
    done = subprocess.run(argv, input=data, capture_output=True, check=True, timeout=120)
    return json.loads(done.stdout)


def codecs(data: bytes) -> dict[str, str]:
    return {s["codec_type"]: s["codec_name"] for s in probe(data)["streams"]}


@pytest.mark.parametrize("sample", SINGLE, ids=lambda s: s.kind)
def test_single(system, world, sample):
    job = system.submit(world.url(sample.url), preset="best", force=True)
    [job] = system.wait([job["id"]])
    assert job["status"] == "SUCCESS", job["error"]
    [file] = job["files"]
    data = system.download(job)
    assert len(data) == file["bytes"]
    assert hashlib.sha256(data).hexdigest() == file["sha256"]
    assert codecs(data)
    if sample.expect.title:
        assert job["title"] == sample.expect.title


@pytest.mark.parametrize("sample", MANY, ids=lambda s: s.kind)
def test_collection(system, world, sample):
    job = system.submit(world.url(sample.url), preset="original", force=True)
    [job] = system.wait([job["id"]], timeout=120)
    assert job["status"] == "SUCCESS", job["error"]
    assert job["children"]["total"] == sample.expect.entries
    assert job["children"]["success"] == sample.expect.entries


@pytest.mark.parametrize("sample", WRONG, ids=lambda s: s.kind)
def test_wrong(system, world, sample):
    job = system.submit(world.url(sample.url), preset="best", force=True)
    [job] = system.wait([job["id"]])
    assert job["status"] == "FAILED"
    assert job["error"]["code"] == sample.expect.error
    assert job["error"]["message"]
    assert job["error"]["help"]
    assert job["files"] == []


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("720p", {"video": "h264", "audio": "aac"}),
        ("audio-m4a", {"audio": "aac"}),
        ("audio-mp3", {"audio": "mp3"}),
    ],
)
@pytest.mark.parametrize("link", ["/webm/vp9.webm", "/mp4/hevc.mp4", "/hls/audio/master.m3u8"])
def test_preset(system, world, link, preset, expected):
    job = system.submit(world.url(link), preset=preset, force=True)
    [job] = system.wait([job["id"]])
    assert job["status"] == "SUCCESS", job["error"]
    assert codecs(system.download(job)) == expected


def test_original_has_the_bytes_of_the_site(system, world):
    job = system.submit(world.url("/mp4/plain.mp4"), preset="original", force=True)
    [job] = system.wait([job["id"]])
    assert job["files"][0]["sha256"] == world.sha256("/mp4/plain.mp4")
