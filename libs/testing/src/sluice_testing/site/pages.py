"""The text that the site serves: pages, feeds, playlists and hostile manifests. Pure functions."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONG = "длинное имя " * 14

#: Titles that break programs: scripts of the world, quotes, slashes, reserved and very long names.
NAMES: tuple[str, ...] = (
    "中文标题 测试视频",
    "Emoji 🎬🔥 family 👨‍👩‍👧",
    "عنوان عربي من اليمين",
    "\u202egnp.elif desrever",
    'She said "it\'s" `fine`',
    "../../etc/passwd",
    "a/b\\c:d*e?f<g>h|i",
    "CON",
    "-rf --exec",
    ".hidden",
    "   spaces and dots ...",
    "<script>alert(1)</script>",
    "%(title)s {0} $HOME",
    "line\nbreak\ttab",
    # 300 bytes and more in UTF-8, of 255 that a file system takes.
    _LONG,
    "x" * 300,
)


def page(title: str, body: str, head: str = "") -> str:
    return (
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"{head}</head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def video_page(title: str, media: Iterable[str], subtitles: Iterable[str] = ()) -> str:
    """A page with one `<video>` per media link, each with subtitles in so many languages."""
    tracks = "".join(
        f'<track kind="subtitles" srclang="{escape(name)}" src="/subtitles/{escape(name)}.vtt">'
        for name in subtitles
    )
    tags = (f'<video controls src="{escape(link)}">{tracks}</video>' for link in media)
    return page(title, "\n".join(tags))


def subtitles(language: str) -> str:
    """WebVTT of one line."""
    return f"WEBVTT\n\n00:00.000 --> 00:02.000\nspoken in {language}\n"


def open_graph_page(title: str, media: str) -> str:
    """A page that shows its media in Open Graph tags only; `media` is absolute."""
    head = (
        f'<meta property="og:title" content="{escape(title)}">'
        f'<meta property="og:video" content="{escape(media)}">'
        '<meta property="og:video:type" content="video/mp4">'
    )
    return page("a site", "<p>no player here</p>", head)


def feed(title: str, items: Iterable[tuple[str, str, int]]) -> str:
    """RSS 2.0; an item is (title, absolute link, bytes)."""
    entries = "\n".join(
        f"<item><title>{escape(name)}</title><guid>{escape(link)}</guid>"
        f'<enclosure url="{escape(link)}" length="{size}" type="video/mp4"/></item>'
        for name, link, size in items
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0"><channel>'
        f"<title>{escape(title)}</title>\n{entries}\n</channel></rss>\n"
    )


def xspf(title: str, items: Iterable[tuple[str, str]]) -> str:
    """An XSPF playlist; an item is (title, absolute link)."""
    tracks = "\n".join(
        f"<track><title>{escape(name)}</title><location>{escape(link)}</location></track>"
        for name, link in items
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<playlist version="1" xmlns="http://xspf.org/ns/0/">'
        f"<title>{escape(title)}</title><trackList>\n{tracks}\n</trackList></playlist>\n"
    )


def hls_playlist(
    segments: Iterable[str], *, sequence: int = 0, ended: bool = True, key: str = ""
) -> str:
    """A media playlist of one-second segments that do not continue each other."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:1"]
    lines.append(f"#EXT-X-MEDIA-SEQUENCE:{sequence}")
    if key:
        lines.append(f"#EXT-X-KEY:{key}")
    for link in segments:
        lines += ["#EXT-X-DISCONTINUITY", "#EXTINF:1.000,", link]
    if ended:
        lines.append("#EXT-X-ENDLIST")
    return "\n".join(lines) + "\n"


def dash_manifest(segment: str, *, protected: bool = False) -> str:
    """A static manifest whose one representation is a list of two segments at `segment`."""
    protection = (
        '<ContentProtection schemeIdUri="urn:mpeg:dash:mp4protection:2011" value="cenc"/>'
        '<ContentProtection schemeIdUri="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed"/>'
        if protected
        else ""
    )
    link = escape(segment)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'profiles="urn:mpeg:dash:profile:isoff-main:2011" '
        'mediaPresentationDuration="PT2.0S" minBufferTime="PT1.0S"><Period>'
        f'<AdaptationSet contentType="video">{protection}'
        '<Representation id="0" mimeType="video/mp4" codecs="avc1.42c00c" bandwidth="150000" '
        'width="320" height="180"><SegmentList timescale="1" duration="1">'
        f'<SegmentURL media="{link}"/><SegmentURL media="{link}"/>'
        "</SegmentList></Representation></AdaptationSet></Period></MPD>\n"
    )
