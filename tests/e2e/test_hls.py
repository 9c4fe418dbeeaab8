"""HLS packages, read by real players through the HTTP API, from either kind of storage."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
from urllib.parse import urljoin

import m3u8
import pytest
from playwright.sync_api import expect

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.waiting import until

TOOLS = ffmpeg_tools()
PLAYLIST_TYPE = "application/vnd.apple.mpegurl"

numbers = itertools.count(1)


def packaged(system, world, path, **fields):
    """A finished job with preset hls, and its files by name."""
    link = world.url(f"{path}?hls={next(numbers)}")
    [job] = system.wait([system.submit(link, preset="hls", **fields)["id"]], timeout=120)
    assert job["status"] == "SUCCESS", job["error"]
    return job, {file["name"]: file for file in job["files"]}


def streams(url):
    """What ffprobe finds from a master playlist on: codec, width, height."""
    argv = [TOOLS.ffprobe, "-v", "error", "-of", "json", "-show_streams", "-show_format", url]
    ran = subprocess.run(argv, check=True, capture_output=True, timeout=120)
    assert ran.stderr == b""
    found = json.loads(ran.stdout)
    seconds = float(found["format"]["duration"])
    return {(s["codec_name"], s.get("width"), s.get("height")) for s in found["streams"]}, seconds


def frames(url):
    """How many pictures each rendition has, when all of it is fetched and decoded."""
    argv = [TOOLS.ffmpeg, "-v", "error", "-i", url, "-map", "0:v", "-f", "framecrc", "-"]
    ran = subprocess.run(argv, check=True, capture_output=True, timeout=120)
    assert ran.stderr == b""
    lines = [line for line in ran.stdout.splitlines() if not line.startswith(b"#")]
    counts = {}
    for line in lines:
        stream = line.split(b",")[0]
        counts[stream] = counts.get(stream, 0) + 1
    return list(counts.values())


@pytest.mark.parametrize("query", ["", "?inline=1"])
def test_a_player_reads_a_package_through_the_api(system, world, query):
    _job, files = packaged(system, world, "/mp4/plain.mp4")
    rungs = ["720p", "480p", "360p", "240p"]
    names = ["master", "audio", *rungs]
    media = {f"{name}.mp4" for name in ("audio", *rungs)}
    assert set(files) == {f"{name}.m3u8" for name in names} | media
    master = system.url + files["master.m3u8"]["url"] + query
    found, seconds = streams(master)
    sizes = {(1280, 720), (854, 480), (640, 360), (426, 240)}
    assert found == {("aac", None, None), *(("h264", *size) for size in sizes)}
    assert seconds == pytest.approx(3, abs=0.1)
    assert frames(master) == [75] * 4


def test_files_are_what_the_job_says_and_playlists_lead_to_them(system, world, stores):
    job, files = packaged(system, world, "/mp4/small.mp4")
    for number, file in enumerate(job["files"]):
        data = system.download(job, number)
        assert len(data) == file["bytes"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        answer = system.http.get(file["url"])
        if file["name"].endswith(".m3u8"):
            # From the API itself: its links are relative to where it came from.
            assert (file["kind"], answer.status_code) == ("playlist", 200)
            assert answer.headers["Content-Type"] == file["content_type"] == PLAYLIST_TYPE
        else:
            assert answer.status_code == (302 if "SLUICE_STORAGE_URL" in stores else 200)
            kind = "audio" if file["name"] == "audio.mp4" else "video"
            assert (file["kind"], file["content_type"]) == (kind, f"{kind}/mp4")
    url = files["master.m3u8"]["url"]
    master = m3u8.loads(system.http.get(url).text)
    named = [p.uri for p in master.playlists] + [media.uri for media in master.media]
    for uri in named:
        media = m3u8.loads(system.http.get(urljoin(url, uri)).text)
        for segment in media.segments:
            size, offset = map(int, segment.byterange.split("@"))
            part = {"Range": f"bytes={offset}-{offset + size - 1}"}
            target = urljoin(url, segment.uri)
            answer = system.http.get(target, headers=part, follow_redirects=True)
            assert (answer.status_code, len(answer.content)) == (206, size)
            assert answer.content[4:8] in (b"moof", b"styp", b"sidx")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/mp4/silent.mp4", {("h264", 320, 180)}),
        ("/mp4/rotated.mp4", {("h264", 180, 320), ("aac", None, None)}),
        ("/mp4/odd.mp4", {("h264", 320, 180), ("aac", None, None)}),
        ("/audio/cover.mp3", {("aac", None, None)}),
    ],
)
def test_any_source(system, world, path, wanted):
    _job, files = packaged(system, world, path)
    assert streams(system.url + files["master.m3u8"]["url"])[0] == wanted


def test_a_deleted_job_leaves_no_file(system, world):
    job, files = packaged(system, world, "/mp4/small.mp4")
    prefix = f"files/{job['id']}/"
    assert len(system.stored(prefix)) == len(files) == 5
    assert system.http.delete(job["links"]["self"]).status_code == 202
    until(lambda: not system.stored(prefix), why=lambda: str(system.stored(prefix)))


def test_the_page_gives_the_address_and_plays_only_where_it_can(page, system, world):
    job, files = packaged(system, world, "/mp4/small.mp4")
    card = page.locator(f"#jobs > .job[data-id='{job['id']}']")
    expect(card.locator(".files li")).to_have_count(5)
    first = card.locator(".files li").first
    address = first.get_by_role("link", name="master.m3u8")
    assert urljoin(page.url, address.get_attribute("href")) == (
        system.url + files["master.m3u8"]["url"]
    )
    plays = page.evaluate(
        f"() => document.createElement('video').canPlayType('{PLAYLIST_TYPE}') !== ''"
    )
    # Pictures without sound are no film: nothing but the package as a whole plays.
    expect(card.get_by_label("Play")).to_have_count(1 if plays else 0)
    with page.expect_download() as waiting:
        first.get_by_label("Download master.m3u8").click()
    assert waiting.value.suggested_filename == "master.m3u8"
    if plays:
        card.get_by_label("Play master.m3u8").click()
        page.wait_for_function("() => document.querySelector('#player video').currentTime > 0.5")
