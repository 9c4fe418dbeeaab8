"""The list of sample links, with what a right system makes of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from urllib.parse import quote

from .pages import NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What should come of a sample link."""

    #: Media behind the link; 1 for a single one.
    entries: int = 1
    #: Formats that yt-dlp lists for a single one; None where that is not the point.
    formats: int | None = 1
    title: str | None = None
    #: Seconds, within a tenth; None when unknown.
    duration: float | None = 3.0
    #: Code of `sluice_core.domain.errors` that the job ends with; None for success.
    error: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The fields that say something, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample link. `url` is a path from `samples()`, absolute from a running site."""

    kind: str
    url: str
    expect: Expect = Expect()


#: Big file offered among the samples, in bytes.
BIG_BYTES = 25_000_000


_VIDEOS = (
    *("plain", "small", "second", "late-index", "hevc", "tenbit"),
    *("silent", "odd", "vfr", "rotated"),
)


def samples() -> tuple[Sample, ...]:
    """Every kind once; the first is the one to show."""
    return (*_pages(), *_direct(), *_adaptive(), *_collections(), *_broken(), *_titles())


def _pages() -> tuple[Sample, ...]:
    return (
        Sample("page-video", "/pages/video", Expect(title="A page with a video (1)")),
        Sample("page-og", "/pages/og", Expect(title="A page with Open Graph tags", formats=None)),
        Sample("page-hls", "/pages/video?media=/hls/ts/master.m3u8", Expect(formats=2, duration=4)),
        Sample("page-signed", "/pages/signed?ttl=60"),
    )


def _direct() -> tuple[Sample, ...]:
    return (
        *(Sample(name, f"/mp4/{name}.mp4", Expect(title=name)) for name in _VIDEOS),
        Sample("long", "/mp4/long.mp4", Expect(title="long", duration=60)),
        Sample("webm", "/webm/vp9.webm", Expect(title="vp9")),
        Sample("mp3", "/audio/tone.mp3", Expect(title="tone")),
        Sample("m4a", "/audio/tone.m4a", Expect(title="tone")),
        Sample("cover-mp3", "/audio/cover.mp3", Expect(title="cover")),
        Sample("cover-m4a", "/audio/cover.m4a", Expect(title="cover")),
        Sample("same-name-1", "/clips/1/clip.mp4", Expect(title="clip")),
        Sample("same-name-2", "/clips/2/clip.mp4", Expect(title="clip")),
        Sample("big", f"/big/{BIG_BYTES}.mp4", Expect(title=str(BIG_BYTES))),
    )


def _adaptive() -> tuple[Sample, ...]:
    return (
        Sample("hls-ts", "/hls/ts/master.m3u8", Expect(formats=2, duration=4)),
        Sample("hls-audio", "/hls/audio/master.m3u8", Expect(formats=3, duration=4)),
        Sample("hls-fmp4", "/hls/fmp4/master.m3u8", Expect(formats=2, duration=4)),
        Sample("hls-many", "/hls/many/40.m3u8", Expect(duration=40)),
        Sample("dash", "/dash/manifest.mpd", Expect(formats=3, duration=4)),
    )


def _collections() -> tuple[Sample, ...]:
    def many(entries: int, title: str | None = None) -> Expect:
        return Expect(entries=entries, formats=None, title=title, duration=None)

    return (
        Sample("page-12", "/pages/videos?n=12", many(12, "A page with 12 videos")),
        Sample("feed", "/feed?n=5", many(5, "A feed of 5")),
        Sample("feed-same-title", "/feed?n=5&same=2", many(5, "A feed of 5")),
        Sample("collection", "/collection?n=20", many(20, "A collection of 20")),
        Sample("playlist", "/playlist.xspf?n=6", many(6)),
    )


def _broken() -> tuple[Sample, ...]:
    def wrong(error: str, entries: int = 1) -> Expect:
        return Expect(error=error, entries=entries, formats=None, duration=None)

    return (
        Sample("truncated", "/broken/truncated.mp4", wrong("incomplete")),
        Sample("cut", "/broken/cut.mp4", wrong("incomplete")),
        Sample("short", "/mp4/plain.mp4?ends=0.7", wrong("incomplete")),
        Sample("hls-hole", "/broken/hls/master.m3u8", wrong("incomplete")),
        Sample("dash-hole", "/broken/dash/manifest.mpd", wrong("incomplete")),
        Sample("empty", "/broken/empty.mp4", wrong("bad_media")),
        Sample("html-as-video", "/broken/html.mp4", wrong("bad_media")),
        Sample("no-media", "/pages/text", wrong("no_media", 0)),
        Sample("not-found", "/mp4/plain.mp4?fail=404", wrong("not_found", 0)),
        Sample("gone", "/mp4/plain.mp4?fail=410", wrong("gone", 0)),
        Sample("drm", "/hostile/drm.m3u8", wrong("drm_protected", 0)),
    )


def _titles() -> tuple[Sample, ...]:
    return tuple(
        Sample(
            f"title-{index}",
            f"/pages/titled?title={quote(name, safe='')}",
            Expect(title=name, formats=None),
        )
        for index, name in enumerate(NAMES)
    )
