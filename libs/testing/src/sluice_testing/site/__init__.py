"""The sample site: a loopback HTTP server that plays the world for tests, benchmarks and demos.

As a library, in a thread of the test process (the fixture `sample_site` gives one)::

    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as site:
        site.url("/mp4/plain.mp4", host=1)          # absolute link, on the second address
        site.control("/hls/ts/*.ts", fail=503, times=2, id="segments")
        site.sha256("/big/200000000.mp4"), site.size("/clips/3/a.mp4?bytes=1000000")
        site.stats("/mp4/plain.mp4").bytes          # what really went out

As a process: `python -m sluice_testing.site [--host A] [--port N] [--hosts B,C] [--ready-file F]
[--cache-dir D] [--prepare]` prints one JSON line when it is ready: `base`, `bases`, `pid` and
`samples`, a list of `{"kind", "url", "expect"}`. SIGTERM, Ctrl-C and the parent's death end it.

Paths
=====
Files, made by ffmpeg on first use and cached (`recipes.py`; all honour ranges):

- `/mp4/plain.mp4` 1280x720 H.264 + AAC, 3 s, fast start; `small` (320x180), `second` (other
  content), `long` (60 s), `late-index` (no fast start), `hevc`, `tenbit` (10-bit, HDR tags),
  `silent` (no audio), `odd` (321x181), `vfr` (variable frame rate), `rotated` (by 90 degrees)
- `/webm/vp9.webm` VP9 + Opus; `/audio/tone.mp3`, `tone.m4a`, `cover.mp3`, `cover.m4a`
- `/hls/ts/master.m3u8` two renditions; `/hls/audio/master.m3u8` with audio of its own;
  `/hls/fmp4/master.m3u8`; `/dash/manifest.mpd` two video and one audio representation
- `/hls/many/<n>.m3u8` n segments of 1 s; `/hls/live.m3u8` moves on for ever

Made while served:

- `/big/<bytes>.mp4` a playable MP4 of exactly that size, bytes different everywhere
- `/clips/<n>/<any name>.mp4` small MP4s, each number with bytes of its own; `?bytes=` sets the size
- `/named/<any name>` one small MP4 under any name (`named_path(name)` quotes it; see `NAMES`)
- `/broken/truncated.mp4` (index lost), `cut.mp4` (index there, half the data), `empty.mp4`
  (0 bytes), `html.mp4` (a page under a video type)
- `/broken/hls/master.m3u8`, `/broken/dash/manifest.mpd` as `/hls/ts/` and `/dash/`, but for the
  third second of each rendition, which is missing

Pages (`title=` sets the title, `media=` the link shown, `with=` a query added to media links):

- `/pages/video` one `<video>`, `subtitles=en,de` with tracks `/subtitles/<language>.vtt`;
  `/pages/og` Open Graph tags; `/pages/titled?title=...`; `/pages/text` no media
- `/pages/videos` 12 videos, `/collection` 20, `/feed` RSS of 5, `/playlist.xspf` of 6: `n=` how
  many, `same=K` the first K alike in title and file name, `bad=3,7` these answer 404, `bytes=`
  size of each, `below=/members` what goes before each link. As control rules these parameters let
  a feed grow under one address
- `/feeds?depth=` a feed of three feeds, each a level less deep; at 1 of `/feed`, at 0 of itself
- `/pages/signed` its link holds under conditions: `ttl=` seconds, `bind=ip,cookie`, refused with
  `stale=` (403 or 410). `media=` may be a manifest: its folder is signed

- `/members/<path>` any of these paths, for who sends the cookie `member` with the value `MEMBER`;
  `/vault/<path>` for who sends `KEEPER` by HTTP Basic; `/pages/mirror` tells in its title and in
  its link, which is good for no other, which `member` came
- `/keyed/<member>/<path>` any of these paths, for who sends this cookie: sites that put it into
  addresses; `/pages/keyed/<path>` redirects there, `/feed?keyed=` lists such links

Redirects and attacks:

- `/redirect/<n>?to=` n hops and then anywhere, `file:///` and private addresses too;
  `/redirect/loop`
- `/hostile/hls-<k>.m3u8`, `master-<k>.m3u8`, `key-<k>.m3u8`, `dash-<k>.mpd`, `page-<k>` with k
  `private` or `file`: links that point inside; `target=` sets another link
- `/hostile/drm.m3u8`, `drm.mpd`; `/hostile/bomb?mb=` gzip that unpacks to so many MiB;
  `/hostile/endless.html`, `endless.mp4`

Behaviour
=========
Query parameters of any path, or control rules by shell pattern (`site.control`, `POST /_control`);
the query wins. Sizes are bytes of the response's body, times are seconds:

- `throttle=` bytes per second; `latency=` before the first byte; `slow_headers=` trickles them
- `fail=` any status, with `retry_after=`; `redirect=` location, with `status=`
- `stall=N` silence after N bytes; `reset=N` RST after them; `short=N` closes after them although
  Content-Length says more. Each counts within one response, so a resumed download moves on, and
  nothing happens to a body that is no longer than N
- `ends=N` closes where N bytes of the whole are out, whichever part of it is asked for; below 1 it
  is a share
- `length=chunked`, `length=close` no Content-Length, `length=wrong` one that is no number,
  `length=huge` one that no media has;
  `ranges=no` answers a Range with 200
- `change=N` other content (ETag, size, bytes) under the address from the N-th request on
- `html=1` a page in place of the media; `type=` another Content-Type
- `times=N` only the first N requests are treated so, `skip=N` after N healthy ones; `id=` names
  the counter, else the path does. HEAD counts too

Counts and control
==================
`GET /_stats` all paths, `GET /_stats?path=` one (with the query, the exact link); fields as in
`PathStats`. Bytes are counted when the kernel takes them: up to a socket buffer (some MiB; 32 KiB
when throttled) more than a client read that left in the middle. `POST /_control` a JSON object of
`path` and parameters, none takes the rule back; `DELETE /_control` takes back all rules;
`POST /_reset` counts and rules; `POST /_cut` cuts open connections (`path` or all).
"""

from .catalog import BIG_BYTES, Expect, Sample
from .pages import NAMES
from .reply import NoSuchPathError
from .router import KEEPER, MEMBER
from .sample import SampleSite, named_path
from .stats import Exchange, PathStats

__all__ = [
    "BIG_BYTES",
    "KEEPER",
    "MEMBER",
    "NAMES",
    "Exchange",
    "Expect",
    "NoSuchPathError",
    "PathStats",
    "Sample",
    "SampleSite",
    "named_path",
]
