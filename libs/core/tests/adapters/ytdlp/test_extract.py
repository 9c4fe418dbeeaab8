import pytest

from sluice_core.domain.errors import SluiceError

SINGLE = [
    "plain",
    "webm",
    "mp3",
    "page-video",
    "page-og",
    "page-hls",
    "hls-audio",
    "hls-fmp4",
    "dash",
    "title-0",
    "title-1",
    "title-2",
]


@pytest.mark.parametrize("kind", SINGLE)
def test_single_media_is_described(sample_site, child, kind):
    sample = sample_site.sample(kind)
    info = child.info(sample.url)
    if sample.expect.title:
        assert info["title"].startswith(sample.expect.title)
    for fmt in info["formats"]:
        assert fmt["format_id"]
        assert fmt["url"].startswith("http")
        assert fmt["ext"]
        assert fmt["protocol"]


def test_formats_are_chosen_by_selector_and_sort(sample_site, child):
    url = sample_site.url("/dash/manifest.mpd")
    best = child.info(url, format="bv*+ba/b")
    assert len(best["formats"]) == 2
    low = child.info(url, format="bv*+ba/b", format_sort=["res:180"])
    assert low["formats"][0]["height"] < best["formats"][0]["height"]
    audio = child.info(url, format="ba")
    assert [fmt["vcodec"] for fmt in audio["formats"]] == ["none"]


def test_page_of_several_videos_gives_entries_that_can_be_fetched_alone(sample_site, child):
    url = sample_site.url("/pages/videos?n=12")
    events = child.extract(url)
    entries = child.of_kind("entry")
    assert len(entries) == 12
    assert events[-1] == {"event": "end", "count": 12, "truncated": False}
    assert len({(entry["url"], entry["item"]) for entry in entries}) == 12
    third = child.info(entries[2]["url"], item=entries[2]["item"])
    assert third["formats"][0]["url"] == entries[2]["media_url"]
    assert third["item"] == 3
    assert child.code(child.info, url, item=13) == "gone"


def test_entries_of_a_feed_name_links_of_their_own(sample_site, child):
    child.extract(sample_site.url("/feed?n=4"))
    entries = child.of_kind("entry")
    assert [entry["url"] for entry in entries] == [
        sample_site.url(f"/clips/{n}/clip-{n}.mp4") for n in range(1, 5)
    ]
    assert {entry["item"] for entry in entries} == {None}
    assert child.of_kind("collection")[0]["title"] == "A feed of 4"


def test_choice_and_cap_of_entries(sample_site, child):
    url = sample_site.url("/feed?n=30")
    child.extract(url, items="2-3,7,28-")
    assert [entry["index"] for entry in child.of_kind("entry")] == [2, 3, 7, 28, 29, 30]
    child.extract(url, max_entries=5)
    assert len(child.of_kind("entry")) == 5
    assert child.of_kind("end") == [{"event": "end", "count": 5, "truncated": True}]
    child.extract(url, max_entries=30)
    assert child.of_kind("end") == [{"event": "end", "count": 30, "truncated": False}]


def test_places_beyond_the_end_are_told_as_such(sample_site, child):
    with pytest.raises(SluiceError, match="no entry at 7-9") as caught:
        child.extract(sample_site.url("/feed?n=5"), items="7-9")
    assert caught.value.code == "no_media"


def test_single_takes_the_first_of_a_collection(sample_site, child):
    info = child.info(sample_site.url("/feed?n=3"), playlist="single")
    assert info["formats"][0]["url"].endswith("/clips/1/clip-1.mp4")


@pytest.mark.parametrize("depth", [1, 2])
def test_an_entry_that_leads_to_a_list_stands_for_its_first(sample_site, child, depth):
    link = sample_site.url(f"/feeds?depth={depth}")
    info = child.info(link, playlist="single")
    assert info["formats"][0]["url"].endswith("/clips/1/clip-1.mp4")
    # As when the stored links were refused: it is found again.
    assert child.info(info["webpage_url"], item=info["item"])["formats"] == info["formats"]


def test_a_feed_of_itself_is_a_circle(sample_site, child):
    link = sample_site.url("/feeds?depth=0")
    assert child.code(child.info, link, playlist="single") == "unsupported_url"
    assert child.code(child.info, link, item=2) == "unsupported_url"
    assert sample_site.stats("/feeds").requests < 50


def test_list_of_one_is_a_single_media_unless_a_list_is_asked_for(sample_site, child):
    url = sample_site.url("/playlist.xspf?n=1")
    child.info(url)
    child.extract(url, playlist="all")
    assert len(child.of_kind("entry")) == 1


def test_five_thousand_entries_stream(sample_site, child):
    seen = []
    child.extract(
        sample_site.url("/feed?n=5000"), stop=lambda: seen.append(len(child.events)) or None
    )
    assert len(child.of_kind("entry")) == 5000


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/pages/text", "no_media"),
        ("/mp4/plain.mp4?fail=404", "not_found"),
        ("/mp4/plain.mp4?fail=410", "gone"),
        ("/mp4/plain.mp4?fail=401", "login_required"),
        ("/mp4/plain.mp4?fail=403", "forbidden"),
        ("/mp4/plain.mp4?fail=451", "geo_blocked"),
        ("/mp4/plain.mp4?fail=500", "server_error"),
        ("/mp4/plain.mp4?fail=503", "server_error"),
        ("/hostile/drm.m3u8", "drm_protected"),
        ("/hostile/drm.mpd", "drm_protected"),
        ("/hls/live.m3u8", "unsupported_url"),
        ("/redirect/loop", "server_error"),
        ("/redirect/1?to=http://127.1.1.1:1/", "network"),
        ("/redirect/1?to=http://10.255.255.1/a.mp4", "blocked_address"),
        ("/redirect/1?to=http://169.254.169.254/latest/", "blocked_address"),
        ("/redirect/1?to=http://[::1]/a.mp4", "blocked_address"),
        ("/redirect/1?to=file:///etc/passwd", "unsupported_url"),
        ("/hostile/page-file", "unsupported_url"),
        ("/hostile/master-file.m3u8", "unsupported_url"),
    ],
)
def test_failures_have_codes(sample_site, child, path, code):
    assert child.code(child.extract, sample_site.url(path)) == code


def test_rate_limit_says_how_long(sample_site, child):
    with pytest.raises(SluiceError) as failure:
        child.extract(sample_site.url("/mp4/plain.mp4?fail=429&retry_after=7"))
    assert (failure.value.code, failure.value.retry_after) == ("rate_limited", 7.0)


def test_nothing_but_what_is_allowed_is_connected_to(sample_site, child):
    url = sample_site.url("/mp4/small.mp4")
    assert child.code(child.extract, url, allow=()) == "blocked_address"
    assert sample_site.all_stats() == {}
