"""Lists in lists, as the tabs of a channel: no such site is here, so its extractors are."""

from __future__ import annotations

import pytest
import yt_dlp.extractor
from yt_dlp import YoutubeDL
from yt_dlp.extractor.common import InfoExtractor
from yt_dlp.utils import ExtractorError

from sluice_core.adapters.ytdlp import extract

HOST = "https://channel.invalid"


class SomeVideoIE(InfoExtractor):
    _VALID_URL = rf"{HOST}/v/(?P<id>\w+)"
    _TESTS = ({"url": f"{HOST}/v/1"},)

    def _real_extract(self, url):
        video = self._match_id(url)
        return {"id": video, "title": video, "url": f"{HOST}/{video}.mp4", "ext": "mp4"}


class SomeTabIE(InfoExtractor):
    _VALID_URL = rf"{HOST}/tab/(?P<id>\w+)"
    _TESTS = ({"url": f"{HOST}/tab/a", "playlist_count": 2}, {"url": f"{HOST}/tab/b"})
    opened: tuple[str, ...] = ()

    def _real_extract(self, url):
        tab = self._match_id(url)
        type(self).opened += (tab,)
        if tab == "gone":
            raise ExtractorError("This tab has been removed", expected=True)
        if tab.startswith("video"):
            return self.url_result(f"{HOST}/v/{tab}", SomeVideoIE)
        videos = [self.url_result(f"{HOST}/v/{tab}{n}", SomeVideoIE) for n in (1, 2)]
        return self.playlist_result(videos, tab, tab)


class SomeChannelIE(InfoExtractor):
    """A channel lists the tabs that its link names, the first one open."""

    _VALID_URL = rf"{HOST}/c/(?P<id>[\w,]+)"
    _TESTS = ({"url": f"{HOST}/c/a", "playlist_count": 2},)

    def _real_extract(self, url):
        first, *others = self._match_id(url).split(",")
        opened = [self.url_result(f"{HOST}/v/{first}{n}", SomeVideoIE) for n in (1, 2)]
        links = [self.url_result(f"{HOST}/tab/{tab}", SomeTabIE) for tab in others]
        return self.playlist_result([self.playlist_result(opened, first), *links], "c", "Channel")


def _instance(ydl, ie):
    made = ie()
    made.set_downloader(ydl)
    return made


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    known = [SomeVideoIE, SomeTabIE, SomeChannelIE]
    monkeypatch.setattr(yt_dlp.extractor, "gen_extractor_classes", lambda: known)
    by_name = {ie.__name__: ie for ie in known}
    monkeypatch.setattr(
        YoutubeDL, "get_info_extractor", lambda ydl, key: _instance(ydl, by_name[f"{key}IE"])
    )
    monkeypatch.setattr(SomeTabIE, "opened", ())


def events_of(tabs, **more):
    events = []
    url = f"{HOST}/c/{tabs}"
    extract.extract({"url": url, "egress": {"allow": []}, **more}, events.append)
    return events


def links_of(tabs, **more):
    return [e["url"] for e in events_of(tabs, **more) if e["event"] == "entry"]


def test_the_videos_of_all_tabs_are_entries_of_the_channel():
    events = events_of("a,b,d")
    assert events[0] == {
        "event": "collection",
        "title": "Channel",
        "url": f"{HOST}/c/a,b,d",
        "id": "c",
    }
    assert [e["url"] for e in events[1:-1]] == [
        f"{HOST}/v/{n}" for n in ("a1", "a2", "b1", "b2", "d1", "d2")
    ]
    assert [e["index"] for e in events[1:-1]] == [1, 2, 3, 4, 5, 6]
    assert events[-1] == {"event": "end", "count": 6, "truncated": False}
    assert links_of("a,b", items="3") == [f"{HOST}/v/b1"]


def test_no_tab_is_opened_beyond_the_cap():
    assert links_of("a,b,d", max_entries=2) == [f"{HOST}/v/a1", f"{HOST}/v/a2"]
    assert SomeTabIE.opened == ("b",)


def test_a_tab_that_cannot_be_read_is_left_to_a_job_of_its_own():
    assert links_of("a,gone,b")[2:] == [f"{HOST}/tab/gone", f"{HOST}/v/b1", f"{HOST}/v/b2"]


def test_once_one_was_no_list_the_others_are_not_opened():
    assert links_of("a,video1,video2,video3")[2:] == [f"{HOST}/tab/video{n}" for n in (1, 2, 3)]
    assert SomeTabIE.opened == ("video1",)


def test_single_takes_the_first_video():
    [event] = events_of("a,b", playlist="single")
    assert event["info"]["formats"][0]["url"] == f"{HOST}/a1.mp4"
