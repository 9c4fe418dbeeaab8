"""The parts that need no site."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import deno_path
from sluice_core.adapters.ytdlp.describe import entry_event, unsmuggle
from sluice_core.adapters.ytdlp.fragments import mend
from sluice_core.adapters.ytdlp.options import Network, base_params, fetch_params
from sluice_core.adapters.ytdlp.resume import PartialFile, Version
from sluice_core.adapters.ytdlp.sniff import is_page
from sluice_core.adapters.ytdlp.ydl import is_fetchable
from sluice_core.runtime.children import child_environment

PAGE = "https://example.com/page"


@pytest.mark.parametrize(
    ("entry", "url", "item"),
    [
        ({"_type": "url", "url": "https://example.com/a"}, "https://example.com/a", None),
        ({"_type": "url_transparent", "url": "https://e.com/a"}, "https://e.com/a", None),
        ({"_type": "url", "url": "bare-id", "ie_key": "Some"}, PAGE, 4),
        ({"_type": "url", "url": "file:///etc/passwd"}, PAGE, 4),
        ({"url": "https://cdn.example.com/a.mp4", "webpage_url": PAGE}, PAGE, 4),
        ({"url": "https://cdn.example.com/a.mp4"}, PAGE, 4),
        ({"url": "https://c.com/a.mp4", "webpage_url": "https://e.com/x"}, "https://e.com/x", None),
        (
            {
                "_type": "url",
                "url": "https://e.com/a.mp4#__youtubedl_smuggle=%7B%22force_videoid%22%3A+1%7D",
            },
            "https://e.com/a.mp4",
            None,
        ),
        (
            {
                "_type": "url",
                "url": "https://e.com/a#__youtubedl_smuggle=%7B%22referer%22%3A+%22x%22%7D",
            },
            PAGE,
            4,
        ),
    ],
)
def test_entry_is_named_so_that_it_can_be_fetched_alone(entry, url, item):
    event = entry_event(entry, 4, PAGE)
    assert (event["url"], event["item"]) == (url, item)


def test_smuggled_data_that_can_not_be_read_is_not_trusted():
    assert unsmuggle("https://e.com/#__youtubedl_smuggle=%7B") == (
        "https://e.com/",
        {"unreadable"},
    )


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        (b"<!DOCTYPE html><html>", True),
        (b"\n  <html lang=en>", True),
        (b"\xef\xbb\xbf<HEAD>", True),
        (b"<!-- saved --> <body>", True),
        (b"<title>Not found</title>", True),
        (b"\x00\x00\x00\x20ftypisom", False),
        (b"\x1aE\xdf\xa3", False),
        (b"ID3\x04", False),
        (b"WEBVTT\n", False),
        (b"<?xml version='1.0'?><tt>", False),
        (b"<tt xml:lang='en'>", False),
        (b"", False),
    ],
)
def test_page_is_told_from_media(start, verdict):
    assert is_page(start) is verdict


@pytest.mark.parametrize(
    ("fmt", "verdict"),
    [
        ({"url": "https://e.com/a", "protocol": "https"}, True),
        ({"url": "https://e.com/a"}, True),
        ({"url": "https://e.com/a.m3u8", "protocol": "m3u8_native"}, True),
        ({"url": "https://e.com/a.m3u8", "protocol": "m3u8"}, True),
        ({"url": "https://e.com/a.mpd", "protocol": "http_dash_segments"}, True),
        ({"url": "rtmp://e.com/a", "protocol": "rtmp"}, False),
        ({"url": "file:///etc/passwd"}, False),
        ({"url": "https://e.com/a", "protocol": "mhtml"}, False),
        ({"url": "wss://e.com/a", "protocol": "websocket_frag"}, False),
        ({}, False),
    ],
)
def test_formats_that_are_ours_to_fetch(fmt, verdict):
    assert is_fetchable(fmt) is verdict


def test_parameters_leave_no_way_out():
    params = base_params(Path("/scratch"), Network.from_request({}))
    assert params["proxy"] == ""
    assert not params["enable_file_urls"]
    assert params["cachedir"] is False
    assert params["external_downloader"] == {"default": "native"}
    assert not Path(params["ffmpeg_location"]).exists()
    assert fetch_params({})["skip_unavailable_fragments"] is False
    proxied = Network.from_request({"egress": {"proxy": "http://proxy:3128"}})
    assert base_params(Path("/scratch"), proxied)["proxy"] == "http://proxy:3128"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (Version('"a"', None, 5), Version('"a"', None, 5), True),
        (Version('"a"', None, 5), Version('"b"', None, 5), False),
        (Version('"a"', None, 5), Version('"a"', None, 6), False),
        (Version(None, "Mon", 5), Version(None, "Tue", 5), False),
        (Version(None, None, 5), Version(None, None, 5), True),
        (Version('"a"', None, None), Version(None, "Mon", None), False),
        (Version(), Version(), False),
    ],
)
def test_versions(old, new, same):
    assert old.matches(new) is same


def test_version_out_of_headers():
    assert Version.of({"ETag": '"x"', "Content-Length": "7"}) == Version('"x"', None, 7)
    assert Version.of({"Content-Length": "3", "Content-Range": "bytes 4-6/7"}).total == 7
    assert Version.of({"Content-Range": "bytes 4-6/*"}).total is None
    assert Version('W/"x"', "Mon", 7).if_range == "Mon"
    assert Version('"x"', "Mon", 7).if_range == '"x"'


def test_state_that_a_kill_cut_in_half_is_no_state(tmp_path):
    file = PartialFile(tmp_path / "a")
    file.note(version=Version('"x"', None, 7))
    assert file.load().version.etag == '"x"'
    (tmp_path / "a.version").write_text('{"format_id": "1", "ver')
    assert not file.load().version.is_known


@pytest.mark.parametrize(
    ("part", "note", "left"),
    [
        (b"12345678", {"part_bytes": 8}, b"12345678"),
        # Killed after a fragment was added and before that was noted.
        (b"12345678more", {"part_bytes": 8}, b"12345678"),
        # The note came to the disk and the bytes did not.
        (b"1234", {"part_bytes": 8}, None),
        (b"12345678", {}, None),
        (b"12345678", None, None),
    ],
)
def test_partial_fragments_are_brought_to_their_note(tmp_path, part, note, left):
    path, noted = tmp_path / "a.part", tmp_path / "a.ytdl"
    file = PartialFile(tmp_path / "a")
    file.begin("1")
    path.write_bytes(part)
    if note is not None:
        noted.write_text(
            json.dumps({"downloader": {"current_fragment": {"index": 2}, "extra_state": note}})
        )
    before = file.load().generation
    mend(file)
    assert (path.read_bytes() if path.exists() else None) == left
    assert noted.exists() is (left is not None)
    assert (file.load().generation == before) is (left is not None)


_PROGRAMS = """
import subprocess, sys
from sluice_core.adapters.ytdlp import child
from yt_dlp.utils._jsruntime import DenoJsRuntime
sys.addaudithook(child._refuse_programs)
print(DenoJsRuntime().info.supported)
for start in (lambda: subprocess.run(["/bin/true"]), lambda: __import__("os").system("true")):
    try:
        start()
        print("started")
    except PermissionError:
        print("refused")
"""


def test_javascript_runtime_is_the_only_program_that_is_started(tmp_path):
    env = child_environment(home=tmp_path, programs=[deno_path().parent], base={})
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAMS],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["True", "refused", "refused"], done.stderr


def test_package_does_not_load_the_library():
    script = (
        "import sys, sluice_core.adapters.ytdlp, sluice_core.runtime.children;"
        "print([name for name in sys.modules if name.startswith('yt_dlp')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
