"""Media of which parts are missing for good: kept with the gaps named, and filled by a retry."""

from __future__ import annotations

import hashlib
import json
import subprocess

import httpx
import pytest

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.waiting import PATIENCE, until

HLS, DASH = "/broken/hls/master.m3u8", "/broken/dash/manifest.mpd"
SHORT = "/mp4/plain.mp4?ends=0.7"


@pytest.fixture(autouse=True)
def _clean(world):
    world.reset()
    yield
    world.reset()


def ended(system, link, **fields):
    job = system.submit(link, force=True, allow_gaps=True, **fields)
    return system.wait([job["id"]], timeout=120)[0]


def length(data):
    argv = [ffmpeg_tools().ffprobe, "-v", "error", "-of", "json", "-show_format", "-"]
    done = subprocess.run(argv, input=data, capture_output=True, check=True, timeout=120)
    return float(json.loads(done.stdout)["format"].get("duration", 0))


def partial_jobs(system):
    lines = httpx.get(f"{system.url}/metrics", timeout=PATIENCE).text.splitlines()
    wanted = 'sluice_jobs_total{preset="best",status="PARTIAL"} '
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (HLS, (["muxed"], "1 of 4 fragments is missing: 0:02-0:03", 4.0)),
        (DASH, (["video", "audio"], "1 of 4 fragments of the pictures is missing: 0:02-0:03", 4.0)),
        (SHORT, (["muxed"], "the end is missing: from 0:02 of 0:03 on", 2.1)),
    ],
    ids=["hls", "dash", "short"],
)
def test_what_is_there_is_kept_and_the_rest_is_named(system, world, path, wanted):
    kinds, said, seconds = wanted
    before = partial_jobs(system)
    job = ended(system, world.url(path), preset="best")
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "incomplete")
    assert said in job["error"]["message"]
    assert [gap["kind"] for gap in job["gaps"]] == kinds
    for gap in job["gaps"]:
        [span] = gap["spans"]
        assert gap["missing"] == span["last"] - span["first"] + 1
        assert gap["seconds"] == pytest.approx(span["end"] - span["start"], abs=0.01)
    assert length(system.download(job)) == pytest.approx(seconds, abs=0.15)
    told = system.http.get(f"/v1/jobs/{job['id']}/explain").json()["sentences"]
    assert any(said in sentence for sentence in told)
    until(lambda: partial_jobs(system) == before + 1)


def test_a_retry_fetches_what_was_missing_and_nothing_else(system, world):
    hole = "/hls/ts/v1-002.ts"
    world.control(hole, fail=404)
    world.control("/subtitles/de.vtt", fail=404)
    page = world.url("/pages/video?subtitles=en,de&media=/hls/ts/master.m3u8")
    job = ended(system, page, preset="original", subtitles=["en", "de"])
    assert job["status"] == "PARTIAL"
    assert [gap["kind"] for gap in job["gaps"]] == ["muxed", "subtitle"]
    world.reset()
    world.control(hole, fail=404)
    # The site has a part of it now: the rest stays named.
    again = system.http.post(f"/v1/jobs/{job['id']}/retry").json()
    assert (again["status"], again["error"]) == ("DOWNLOADING", None)
    assert (again["files"], again["gaps"]) == (job["files"], job["gaps"])
    [job] = system.wait([job["id"]], timeout=120)
    assert [(gap["kind"], gap["missing"]) for gap in job["gaps"]] == [("muxed", 1)]
    world.reset()
    assert system.http.post(f"/v1/jobs/{job['id']}/retry").status_code == 202
    [job] = system.wait([job["id"]], timeout=120)
    assert (job["status"], job["error"], job["gaps"]) == ("SUCCESS", None, [])
    segments = [httpx.get(world.url(f"/hls/ts/v1-{n:03d}.ts")).content for n in range(4)]
    whole = hashlib.sha256(b"".join(segments)).hexdigest()
    assert job["files"][0]["sha256"] == whole
    asked = {path: s.requests for path, s in world.all_stats().items() if s.bytes}
    # Each once by this test, and the missing one by the retry.
    assert {path: n for path, n in asked.items() if path.endswith(".ts")} == {
        f"/hls/ts/v1-{n:03d}.ts": 1 + (n == 2) for n in range(4)
    }
    assert not [path for path in asked if "/subtitles/" in path or path.startswith("/pages")]


def test_without_its_beginning_nothing_is_kept(system, world):
    world.control("/dash/init-2.m4s", fail=404)
    job = ended(system, world.url("/dash/manifest.mpd"), preset="best")
    assert (job["status"], job["error"]["code"], job["files"]) == ("FAILED", "incomplete", [])
