"""What is asked of the sample site, and what each link deserves, whatever is broken on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from urllib.parse import urlencode

from sluice_testing import encodes

#: Addresses of the site: several hosts to the system.
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Bytes of each entry of a collection.
CHILD = 300_000
#: What the site does to everything adaptive, so that it is under way for seconds.
RULES = {"/hls/*": {"throttle": 300_000}, "/dash/*": {"throttle": 300_000}}


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link; its path is nobody else's, so that the site's counters tell about this job."""

    kind: str
    path: str
    preset: str = "original"
    priority: str = "default"
    status: str = "SUCCESS"
    code: str | None = None
    #: Path of the media behind the path, when it is another one.
    media: str = ""
    #: The result has the very bytes of the media.
    verbatim: bool = True
    #: Seconds of the result; None where the bytes say all.
    duration: float | None = None
    #: Pictures of the result; None where they are not counted.
    frames: int | None = None
    children: tuple[Link, ...] = ()

    @property
    def source(self) -> str:
        """Path of the bytes."""
        return self.media or self.path


def plan(count: int, rng: Random) -> list[Link]:
    """As many links, every kind among them, in random order; but first what takes longest."""
    makers = [maker for maker, share in SHARES.items() for _ in range(share)]
    rng.shuffle(makers)
    makers.sort(key=lambda maker: maker not in (_collection, _long_encode))
    chosen = [makers[number % len(makers)] for number in range(count)]
    # Numbers of clips are far apart from those that collections list.
    return [make(10_000 + number, rng) for number, make in enumerate(chosen)]


def _clip(number: int, rng: Random, kind: str = "clip", **behaviour: object) -> Link:
    size = rng.randrange(400_000, 3_000_000)
    query = {"bytes": size, "throttle": size // rng.randrange(1, 6), **behaviour}
    return Link(kind=kind, path=f"/clips/{number}/clip.mp4?{urlencode(query)}")


def _big(number: int, _rng: Random) -> Link:
    """Large enough that fetching it anew would show."""
    return Link(kind="big", path=f"/big/{40_000_000 + number}.mp4?throttle=8000000")


def _reset(number: int, rng: Random) -> Link:
    return _clip(number, rng, "reset", reset=200_000, times=3)


def _short(number: int, rng: Random) -> Link:
    return _clip(number, rng, "short", short=200_000, times=3)


def _stall(number: int, rng: Random) -> Link:
    return _clip(number, rng, "stall", stall=200_000, times=2)


def _refused(number: int, rng: Random) -> Link:
    return _clip(number, rng, "503", fail=503, times=2)


def _limited(number: int, rng: Random) -> Link:
    return _clip(number, rng, "429", fail=429, retry_after=2, times=1)


def _chunked(number: int, rng: Random) -> Link:
    return _clip(number, rng, "chunked", length="chunked")


def _rangeless(number: int, rng: Random) -> Link:
    return _clip(number, rng, "no ranges", ranges="no")


def _redirected(number: int, _rng: Random) -> Link:
    media = f"/clips/{number}/a.mp4"
    return Link(kind="redirect", path=f"/redirect/3?{urlencode({'to': media})}", media=media)


def _page(number: int, rng: Random) -> Link:
    media = f"/clips/{number}/in-page.mp4?throttle=100000"
    kind, extra = rng.choice([("og", {}), ("video", {}), ("signed", {"ttl": 20})])
    path = f"/pages/{kind}?{urlencode({'media': media, **extra})}"
    return Link(kind=f"page {kind}", path=path, media=media)


def _hls(number: int, rng: Random) -> Link:
    path, seconds = rng.choice(
        [("ts/master", 4.0), ("audio/master", 4.0), ("fmp4/master", 4.0), ("many/12", 12.0)]
    )
    return _media("hls", f"/hls/{path}.m3u8?job={number}", seconds, "best")


def _dash(number: int, _rng: Random) -> Link:
    return _media("dash", f"/dash/manifest.mpd?job={number}", 4.0, "best")


def _encode(number: int, rng: Random) -> Link:
    path, preset = rng.choice(
        [("webm/vp9.webm", "720p"), ("mp4/hevc.mp4", "720p"), ("mp4/plain.mp4", "audio-mp3")]
    )
    return _media(preset, f"/{path}?job={number}", 3.0, preset)


def _long_encode(number: int, _rng: Random) -> Link:
    """Cut into segments, some of which other slots encode."""
    path = f"{encodes.LONG}?job={number}"
    return _media("long encode", path, encodes.LENGTH, "small", frames=encodes.FRAMES)


def _media(kind: str, path: str, seconds: float, preset: str, *, frames: int | None = None) -> Link:
    return Link(
        kind=kind, path=path, preset=preset, verbatim=False, duration=seconds, frames=frames
    )


def _collection(number: int, rng: Random) -> Link:
    count, bad = rng.randrange(3, 9), rng.choice([0, 0, 2])
    extra = f"job={number}&throttle=80000"
    query = {"n": count, "bytes": CHILD, "with": extra, **({"bad": bad} if bad else {})}
    children = []
    for item in range(1, count + 1):
        path = f"/clips/{item}/clip-{item}.mp4?bytes={CHILD}&{extra}"
        child = Link(kind="child", path=path)
        if item == bad:
            wrong = f"{path}&fail=404"
            child = Link(kind="child", path=wrong, status="FAILED", code="not_found")
        children.append(child)
    return Link(
        kind="collection",
        path=f"{rng.choice(['/collection', '/feed'])}?{urlencode(query)}",
        # Else its children wait for all others, and none would settle while things break.
        priority="high",
        status="PARTIAL" if bad else "SUCCESS",
        children=tuple(children),
    )


def _wrong(number: int, rng: Random) -> Link:
    path, code = rng.choice(
        [
            ("/broken/truncated.mp4?", "incomplete"),
            ("/broken/html.mp4?", "bad_media"),
            ("/broken/empty.mp4?", "bad_media"),
            ("/pages/text?", "no_media"),
            ("/mp4/plain.mp4?fail=404&", "not_found"),
            ("/mp4/plain.mp4?fail=410&", "gone"),
            ("/hostile/drm.m3u8?", "drm_protected"),
        ]
    )
    return Link(kind=code, path=f"{path}job={number}", status="FAILED", code=code)


#: How often each kind comes, out of the sum.
SHARES: dict[Callable[[int, Random], Link], int] = {
    _clip: 8,
    _big: 2,
    _reset: 2,
    _short: 2,
    _stall: 1,
    _refused: 2,
    _limited: 1,
    _chunked: 1,
    _rangeless: 1,
    _redirected: 1,
    _page: 4,
    _hls: 4,
    _dash: 2,
    _encode: 3,
    _long_encode: 2,
    _collection: 3,
    _wrong: 4,
}
