"""The files are what their names say, always the same, and made once however many ask."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.domain.errors import SluiceError
from sluice_testing.site import SampleSite
from sluice_testing.site.media import MediaCache, sample_ffmpeg
from sluice_testing.site.recipes import Recipe, recipe_for

FFPROBE = ffmpeg_tools().ffprobe

BIG = 5_000_000_000


def probe(target: str | Path) -> dict:
    done = subprocess.run(
        [
            FFPROBE,
            "-v",
            "error",
            "-show_streams",
            "-show_format",
            "-of",
            "json",
            target,
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def streams(info: dict) -> list[str]:
    return [stream["codec_name"] for stream in info["streams"]]


@pytest.mark.parametrize(
    ("path", "codecs"),
    [
        ("/mp4/plain.mp4", ["h264", "aac"]),
        ("/mp4/small.mp4", ["h264", "aac"]),
        ("/mp4/second.mp4", ["h264", "aac"]),
        ("/mp4/late-index.mp4", ["h264", "aac"]),
        ("/mp4/hevc.mp4", ["hevc", "aac"]),
        ("/mp4/tenbit.mp4", ["h264", "aac"]),
        ("/mp4/silent.mp4", ["h264"]),
        ("/mp4/odd.mp4", ["h264", "aac"]),
        ("/mp4/vfr.mp4", ["h264", "aac"]),
        ("/mp4/rotated.mp4", ["h264", "aac"]),
        ("/webm/vp9.webm", ["vp9", "opus"]),
        ("/audio/tone.mp3", ["mp3"]),
        ("/audio/tone.m4a", ["aac"]),
        ("/audio/cover.mp3", ["mp3", "mjpeg"]),
        ("/audio/cover.m4a", ["aac", "mjpeg"]),
        ("/clips/7/a.mp4", ["h264", "aac"]),
    ],
)
def test_codecs_and_duration(sample_site, path, codecs):
    info = probe(sample_site.url(path))
    assert streams(info) == codecs
    assert float(info["format"]["duration"]) == pytest.approx(3, abs=0.1)


def test_what_makes_the_special_ones_special(sample_site):
    def video(path: str) -> dict:
        return probe(sample_site.url(path))["streams"][0]

    assert (video("/mp4/plain.mp4")["width"], video("/mp4/plain.mp4")["height"]) == (1280, 720)
    assert video("/mp4/odd.mp4")["width"] == 321
    assert video("/mp4/tenbit.mp4")["pix_fmt"] == "yuv420p10le"
    assert video("/mp4/tenbit.mp4")["color_transfer"] == "smpte2084"
    assert abs(video("/mp4/rotated.mp4")["side_data_list"][0]["rotation"]) == 90
    assert video("/mp4/vfr.mp4")["avg_frame_rate"] != video("/mp4/vfr.mp4")["r_frame_rate"]
    cover = probe(sample_site.url("/audio/cover.mp3"))["streams"][1]
    assert cover["disposition"]["attached_pic"] == 1


@pytest.mark.parametrize("name", ["truncated", "empty", "html"])
def test_broken_ones_do_not_probe(sample_site, name):
    with pytest.raises(subprocess.CalledProcessError):
        probe(sample_site.url(f"/broken/{name}.mp4"))


@pytest.mark.parametrize("size", [1_000_000, 25_000_000, BIG])
def test_a_big_file_is_playable_and_of_exact_size(sample_site, get, size):
    path = f"/big/{size}.mp4"
    assert streams(probe(sample_site.url(path))) == ["h264", "aac"]
    assert get(sample_site.url(path), method="HEAD").headers["Content-Length"] == str(size)
    # Reading the index takes little of it, however big it is.
    assert sample_site.stats(path).bytes < 20_000_000
    tail = get(sample_site.url(path), headers={"Range": "bytes=-10"})
    assert tail.headers["Content-Range"] == f"bytes {size - 10}-{size - 1}/{size}"
    assert len(tail.body) == 10


def test_a_big_file_is_the_same_in_whole_and_in_pieces(sample_site, get):
    path, size, piece = "/big/20000000.mp4", 20_000_000, 3_333_333
    url = sample_site.url(path)
    pieces = [
        get(url, headers={"Range": f"bytes={at}-{min(at + piece, size) - 1}"}).body
        for at in range(0, size, piece)
    ]
    whole = get(url).body
    assert b"".join(pieces) == whole
    assert hashlib.sha256(whole).hexdigest() == sample_site.sha256(path)
    # A download that resumes at a wrong place must not get the right bytes by luck.
    assert len(set(pieces)) == len(pieces)
    step = 1 << 22
    assert whole[step : 2 * step] != whole[2 * step : 3 * step]


def test_clips_have_bytes_of_their_own(sample_site):
    digests = {sample_site.sha256(f"/clips/{n}/clip.mp4") for n in range(1, 13)}
    assert len(digests) == 12
    assert sample_site.size("/clips/1/clip.mp4?bytes=1000000") == 1_000_000


def test_too_small_a_big_file_is_refused(sample_site, get):
    assert get(sample_site.url("/big/100.mp4")).status == 400


def test_two_caches_hold_the_same_bytes(tmp_path):
    digests = []
    for name in ("one", "two"):
        with SampleSite(cache_dir=tmp_path / name) as site:
            paths = ("/mp4/small.mp4", "/audio/cover.mp3", "/hls/ts/v0-000.ts", "/webm/vp9.webm")
            digests.append([site.sha256(path) for path in paths])
    assert digests[0] == digests[1]


_MAKE = """
import sys
from pathlib import Path
from sluice_testing.site import SampleSite
site = SampleSite(cache_dir=Path(sys.argv[1]))
print(site.sha256("/mp4/silent.mp4"))
"""


def test_processes_share_one_making(tmp_path):
    def make(_: int) -> str:
        command = [sys.executable, "-c", _MAKE, tmp_path]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120
        ).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        digests = set(pool.map(make, range(4)))
    assert len(digests) == 1
    # Nothing half-made is left beside the result.
    assert not [file for file in tmp_path.glob("*/.*") if file.is_dir()]


def test_what_a_killed_maker_left_is_swept(tmp_path):
    recipe, _ = recipe_for("/mp4/silent.mp4") or pytest.fail("no recipe")
    cache = MediaCache(tmp_path, ffmpeg=sample_ffmpeg())
    left = cache.ensure(recipe).parent / f".{recipe.key}.left"
    cache.ensure(recipe).rename(left)
    assert (cache.ensure(recipe) / "silent.mp4").is_file()
    assert not left.exists()


def test_a_failing_recipe_says_why_and_leaves_nothing(tmp_path):
    cache = MediaCache(tmp_path, ffmpeg=sample_ffmpeg())
    recipe = Recipe("bad", "/bad/", ("x.mp4",), (("-i", "absent.mp4", "x.mp4"),))
    with pytest.raises(SluiceError, match="absent"):
        cache.ensure(recipe)
    assert not [found for found in tmp_path.glob("*/*") if found.is_dir()]
