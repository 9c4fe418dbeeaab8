"""What is missing for good is left out and named, where that is allowed, and may come later."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest

from sluice_core.adapters.ytdlp.gaps import timeline_of_dash, timeline_of_hls
from sluice_core.adapters.ytdlp.resume import PartialFile

TS, FMP4, DASH = "/hls/ts/master.m3u8", "/hls/fmp4/master.m3u8", "/dash/manifest.mpd"
MANY = 12


def paths_of(fmt):
    """The fragments of a format, what prepares the decoder among them."""
    if fmt.get("fragments"):
        base = fmt.get("fragment_base_url", "")
        links = [f.get("url") or urljoin(base, f["path"]) for f in fmt["fragments"]]
        return [urlsplit(link).path for link in links]
    if fmt["protocol"] == "http":
        return []
    with urlopen(fmt["url"], timeout=60) as response:  # noqa: S310  # the sample site
        lines = [line.strip() for line in response.read().decode().splitlines()]
    links = [line for line in lines if line and not line.startswith("#")]
    maps = [line.partition('URI="')[2].partition('"')[0] for line in lines if "X-MAP" in line]
    return [urlsplit(urljoin(fmt["url"], link)).path for link in maps + links]


class Media:
    """One format of a sample, and the site that may lose parts of it."""

    def __init__(self, site, child, path):
        self.site, self.child = site, child
        self.info = child.info(site.url(path))
        self.fmt = self.info["formats"][0]
        self.paths = paths_of(self.fmt)
        self.file = PartialFile(child.scratch / "track.media")
        self.whole = self.fetch(allow_gaps=False)
        self.file.dest.unlink()
        site.reset()

    def fetch(self, **request):
        request = {"allow_gaps": True, **request}
        return self.child.fetch(self.info, self.fmt["format_id"], **request).read_bytes()

    def lose(self, *numbers, fail=404):
        for number in numbers:
            self.site.control(self.paths[number - 1], fail=fail)

    def asked(self):
        """Paths that were asked for since, with the number of requests."""
        stats = self.site.all_stats()
        return {path: stats[path].requests for path in self.paths if path in stats}

    def holes(self):
        note = self.file.gaps()
        return [(h.first - note.head, h.last - note.head, h.start, h.end) for h in note.holes]


@pytest.fixture(params=[TS, FMP4, DASH], ids=["ts", "fmp4", "dash"])
def media(request, sample_site, child):
    return Media(sample_site, child, request.param)


def test_a_missing_fragment_is_left_out_and_named(media):
    third = len(media.paths) - 1
    media.lose(third)
    kept = media.fetch()
    assert len(kept) < len(media.whole)
    [(first, last, start, end)] = media.holes()
    assert (first, last) == (3, 3)
    assert (round(start, 1), round(end, 1)) == (2.0, 3.0)
    assert (media.file.gaps().total, media.file.gaps().code) == (4, "not_found")
    # The rest is what it is in the whole.
    at = media.file.gaps().holes[0].at
    assert media.whole.startswith(kept[:at])
    assert media.whole.endswith(kept[at:])
    # The usual tries, and as many at the end.
    assert media.asked()[media.paths[third - 1]] == 8


def test_what_was_missing_is_all_that_is_asked_for_later(media):
    third = len(media.paths) - 1
    media.lose(third)
    media.fetch()
    media.site.reset()
    assert media.fetch() == media.whole
    assert media.asked() == {media.paths[third - 1]: 1}
    assert media.file.gaps() is None
    left = {path.name for path in media.child.scratch.iterdir()} - {".writer.lock"}
    assert left == {"track.media"}


def test_some_of_it_comes_later(sample_site, child):
    media = Media(sample_site, child, TS)
    media.lose(2, 4)
    media.fetch()
    assert [hole[:2] for hole in media.holes()] == [(2, 2), (4, 4)]
    media.site.reset()
    media.lose(2)
    media.fetch()
    assert [hole[:2] for hole in media.holes()] == [(2, 2)]
    media.site.reset()
    assert media.fetch() == media.whole


@pytest.mark.parametrize(
    ("path", "lost"),
    [(TS, [1]), (FMP4, [1]), (FMP4, [2]), (DASH, [1]), (DASH, [2]), (TS, [2, 3, 4])],
    ids=["first", "map", "first-fmp4", "init", "first-dash", "more-than-half"],
)
def test_without_its_beginning_or_most_of_it_nothing_is_kept(sample_site, child, path, lost):
    media = Media(sample_site, child, path)
    media.lose(*lost)
    assert child.code(media.fetch) == "incomplete"
    assert not media.file.dest.exists()


@pytest.mark.parametrize("fail", [403, 500, 429])
def test_what_may_heal_is_no_gap(sample_site, child, fail):
    media = Media(sample_site, child, TS)
    media.lose(3, fail=fail)
    code = {403: "forbidden", 500: "server_error", 429: "rate_limited"}[fail]
    assert child.code(media.fetch) == code
    assert not media.file.dest.exists()


def test_gone_counts_once_the_page_was_asked_again(sample_site, child):
    media = Media(sample_site, child, TS)
    media.lose(3, fail=410)
    media.fetch()
    assert child.of_kind("reextracted")
    assert media.file.gaps().code == "gone"


def test_a_hole_that_comes_and_goes_is_none(sample_site, child):
    media = Media(sample_site, child, TS)
    media.site.control(media.paths[2], fail=404, times=5)
    assert media.fetch() == media.whole
    assert media.file.gaps() is None


def test_neighbours_are_one_hole(sample_site, child):
    media = Media(sample_site, child, f"/hls/many/{MANY}.m3u8")
    # Every fourth link of the list is this file.
    media.lose(4)
    media.fetch(fragments_at_once=1)
    assert [hole[:2] for hole in media.holes()] == [(n, n) for n in range(4, MANY + 1, 4)]
    media.site.reset()
    media.lose(3, 4)
    media.file.dest.unlink()
    media.fetch()
    assert [hole[:2] for hole in media.holes()] == [(n, n + 1) for n in range(3, MANY, 4)]


def lost_at(child, number):
    """Stop the child after it left out so many fragments."""
    enough = lambda event: event["event"] == "missing" and event["fragments"] >= number  # noqa: E731
    return lambda: "drained" if any(map(enough, child.events)) else None


def test_a_run_that_is_cut_off_forgets_no_hole(sample_site, child):
    media = Media(sample_site, child, f"/hls/many/{MANY}.m3u8")
    media.lose(4)
    once = media.fetch()
    holes = media.holes()
    media.file.dest.unlink()
    media.site.reset()
    media.lose(4)
    media.site.control(media.paths[0], latency=0.3)
    child.fetch(media.info, allow_gaps=True, stop=lost_at(child, 2))
    assert child.result.reason == "drained"
    assert not media.file.dest.exists()
    assert media.fetch() == once
    assert media.holes() == holes


def test_a_filling_that_is_cut_off_goes_on(sample_site, child):
    media = Media(sample_site, child, f"/hls/many/{MANY}.m3u8")
    media.lose(4)
    media.fetch()
    media.site.reset()
    media.site.control(media.paths[3], latency=0.3)
    some = lambda event: event.get("fragment", 0) >= MANY - 2  # noqa: E731
    child.fetch(
        media.info,
        allow_gaps=True,
        fragments_at_once=1,
        stop=lambda: "drained" if any(map(some, child.events)) else None,
    )
    assert child.result.reason == "drained"
    assert media.file.gapped.exists()
    assert media.fetch() == media.whole
    asked = media.asked()
    assert set(asked) == {media.paths[3]}
    assert asked[media.paths[3]] <= MANY // 4 + 1


PLAIN = "/mp4/plain.mp4"


def test_a_file_that_always_ends_too_early_is_kept_without_its_end(sample_site, child):
    media = Media(sample_site, child, PLAIN)
    media.site.control(PLAIN, ends=0.7)
    kept = media.fetch()
    assert media.whole.startswith(kept)
    note = media.file.gaps()
    [hole] = note.holes
    assert (note.unit, note.total) == ("bytes", len(media.whole))
    assert (hole.first, hole.last) == (len(kept), len(media.whole) - 1)
    assert 0.69 < len(kept) / len(media.whole) <= 0.7
    media.site.reset()
    assert media.fetch() == media.whole
    assert media.file.gaps() is None
    assert media.site.stats(PLAIN).bytes == len(media.whole) - len(kept)


@pytest.mark.parametrize("control", [{"ends": 0.3}, {"fail": 404}, {"fail": 500}])
def test_half_of_a_file_must_be_there(sample_site, child, control):
    media = Media(sample_site, child, PLAIN)
    media.site.control(PLAIN, **control)
    code = {404: "not_found", 500: "server_error", None: "incomplete"}[control.get("fail")]
    assert child.code(media.fetch) == code
    assert not media.file.dest.exists()


def test_a_connection_that_ends_now_and_then_costs_nothing(sample_site, child):
    media = Media(sample_site, child, PLAIN)
    media.site.control(PLAIN, short=400_000)
    assert media.fetch() == media.whole
    assert media.file.gaps() is None


def test_times_come_from_the_manifest():
    text = '#EXTM3U\n#EXT-X-MAP:URI="i.mp4"\n#EXTINF:4.5,a title\n1.m4s\n\n#EXTINF:2\n2.m4s\n'
    line = timeline_of_hls(text)
    assert (line.head, line.span(3, 3), line.span(2, 3)) == (1, (4.5, 6.5), (0.0, 6.5))
    assert timeline_of_hls("#EXTM3U\n1.ts\n2.ts\n").span(2, 2) is None
    assert timeline_of_hls("#EXTINF:never,\n1.ts\n").span(1, 1) is None
    listed = timeline_of_dash([{"url": "i"}, {"url": "1", "duration": 2.0}])
    assert (listed.head, listed.span(2, 2)) == (1, (0.0, 2.0))
    assert timeline_of_dash([{"url": "1"}, {"url": "2"}]).span(1, 1) is None
