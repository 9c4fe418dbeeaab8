"""Answers that attack: manifests that point inside, bombs, bodies without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import pages
from .bodies import EndlessBody, GzipBomb
from .reply import DASH, HLS, HTML, Reply, text_reply

if TYPE_CHECKING:
    import re

    from .reply import Asked, Sources

#: An address that no test network routes, and a file that every system has.
PRIVATE_TARGET = "http://10.255.255.1/segment.ts"
FILE_TARGET = "file:///etc/passwd"
_MIB = 1 << 20


def hls(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    target = _target(asked, match[1])
    return text_reply(pages.hls_playlist([target, target]), HLS)


def hls_key(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    key = f'METHOD=AES-128,URI="{_target(asked, match[1])}"'
    segments = ["/hls/ts/v0-000.ts", "/hls/ts/v0-001.ts"]
    return text_reply(pages.hls_playlist(segments, key=key), HLS)


def hls_master(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    target = _target(asked, match[1])
    text = f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=200000,RESOLUTION=320x180\n{target}\n"
    return text_reply(text, HLS)


def dash(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    return text_reply(pages.dash_manifest(_target(asked, match[1])), DASH)


def page(_site: Sources, asked: Asked, match: re.Match[str]) -> Reply:
    return text_reply(pages.video_page("A page that points inside", [_target(asked, match[1])]))


def drm_hls(_site: Sources, _asked: Asked, _match: re.Match[str]) -> Reply:
    key = (
        'METHOD=SAMPLE-AES,URI="skd://key",KEYFORMAT="com.apple.streamingkeydelivery",'
        'KEYFORMATVERSIONS="1"'
    )
    return text_reply(pages.hls_playlist(["/hls/ts/v0-000.ts"], key=key), HLS)


def drm_dash(_site: Sources, _asked: Asked, _match: re.Match[str]) -> Reply:
    return text_reply(pages.dash_manifest("/dash/part-0-001.m4s", protected=True), DASH)


def bomb(_site: Sources, asked: Asked, _match: re.Match[str]) -> Reply:
    head = pages.video_page("A page that unpacks", ["/mp4/plain.mp4"]).encode()
    size = int(asked.params.get("mb", "1024")) * _MIB
    packed = (("Content-Encoding", "gzip"),)
    return Reply(body=GzipBomb(head, size), content_type=HTML, headers=packed)


def endless(_site: Sources, _asked: Asked, match: re.Match[str]) -> Reply:
    if match[1] == "html":
        start = b"<!DOCTYPE html><html><head><title>Without end</title></head><body>"
        return Reply(body=EndlessBody(start, b"<p>and so on</p>\n" * 4096), content_type=HTML)
    # An mdat box of unknown length, as a live recording would begin.
    box = b"\0\0\0\x18ftypisom\0\0\0\0isommp41" + b"\0\0\0\0mdat"
    return Reply(body=EndlessBody(box, bytes(65536)), content_type="video/mp4")


def _target(asked: Asked, kind: str) -> str:
    usual = FILE_TARGET if kind == "file" else PRIVATE_TARGET
    return asked.params.get("target", usual)
