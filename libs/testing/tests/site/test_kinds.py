"""yt-dlp finds in every kind of link what its catalogue entry says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yt_dlp

from sluice_testing.site import NAMES, SampleSite
from sluice_testing.site.catalog import samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Silent:
    def debug(self, _: str) -> None: ...

    info = warning = error = debug


@pytest.fixture(scope="module")
def site() -> Iterator[SampleSite]:
    with SampleSite() as running:
        yield running


@pytest.fixture(scope="module")
def extractor() -> Iterator[yt_dlp.YoutubeDL]:
    with yt_dlp.YoutubeDL({"quiet": True, "logger": Silent(), "extractor_retries": 0}) as found:
        yield found


def _extract(extractor: yt_dlp.YoutubeDL, url: str, *, process: bool) -> Any:
    return extractor.extract_info(url, download=False, process=process)


@pytest.mark.parametrize("sample", samples(), ids=lambda s: s.kind)
def test_ytdlp_finds_what_the_catalogue_says(sample, site, extractor):
    expect = sample.expect
    url = site.url(sample.url)
    if expect.entries == 0:
        with pytest.raises(yt_dlp.utils.DownloadError):
            _extract(extractor, url, process=True)
        return
    # A collection's entries are counted, not followed: twenty links would be twenty requests.
    info = _extract(extractor, url, process=expect.entries == 1)
    entries = list(info["entries"]) if "entries" in info else [info]
    assert len(entries) == expect.entries
    if expect.formats is not None:
        assert len(entries[0]["formats"]) == expect.formats
    if expect.title is not None:
        assert info["title"] == expect.title


def test_titles_of_a_collection_differ_or_collide_as_asked(site, extractor):
    page = _extract(extractor, site.url("/pages/videos?n=12"), process=False)
    assert len({entry["title"] for entry in page["entries"]}) == 12
    feed = _extract(extractor, site.url("/feed?n=12&same=2"), process=False)
    titles = [entry["title"] for entry in feed["entries"]]
    assert len(titles) == 12
    assert titles[0] == titles[1]
    assert len(set(titles)) == 11


def test_a_feed_grows_under_one_address(sample_site, extractor):
    for count in (3, 300):
        sample_site.control("/feed", n=count)
        info = _extract(extractor, sample_site.url("/feed"), process=False)
        assert len(list(info["entries"])) == count


@pytest.mark.parametrize("path", ["/pages/videos", "/collection", "/feed", "/playlist.xspf"])
def test_items_take_size_faults_and_queries(site, get, path):
    listing = get(site.url(f"{path}?n=3&bytes=1000000&bad=2&with=throttle%3D5")).body.decode()
    usual = "mp4?bytes=1000000&amp;throttle=5"
    assert listing.count(usual) >= 3
    bad = f"/clips/2/clip-2.{usual}&amp;fail=404"
    assert bad in listing
    assert "clip-3.mp4" in listing
    assert listing.count("fail=404") == listing.count(bad)


def test_names_reach_beyond_what_a_file_system_takes():
    assert any(len(name.encode()) >= 300 for name in NAMES)


@pytest.mark.parametrize("kind", ["hls-ts", "hls-fmp4", "plain", "page-og", "page-signed"])
def test_ytdlp_downloads_it_whole(kind, site, tmp_path: Path):
    options = {"quiet": True, "logger": Silent(), "outtmpl": str(tmp_path / "got.%(ext)s")}
    options |= {"fixup": "never", "noprogress": True}
    with yt_dlp.YoutubeDL(options) as downloader:
        assert downloader.download([site.sample(kind).url]) == 0
    (got,) = tmp_path.iterdir()
    if kind.startswith("hls"):
        assert got.stat().st_size > 100_000
    else:
        assert got.stat().st_size == site.size("/mp4/plain.mp4")
