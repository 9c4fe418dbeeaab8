import pytest

from sluice_parser.worker import child_entry, described, track_of


@pytest.mark.parametrize(
    ("fmt", "kind", "size"),
    [
        ({"vcodec": "h264", "acodec": "aac", "filesize": 9}, "muxed", 9),
        ({"vcodec": "h264", "acodec": "none", "filesize_approx": 7.5}, "video", 7),
        ({"vcodec": "none", "acodec": "mp4a"}, "audio", None),
        ({"filesize": 10**400, "filesize_approx": float("inf")}, "muxed", None),
        ({}, "muxed", None),  # a direct file: nothing is known before it is here
    ],
)
def test_track(fmt, kind, size):
    track = track_of({"format_id": 22, "ext": "mp4", **fmt})
    assert (track.format_id, track.kind, track.bytes) == ("22", kind, size)


def test_entries_are_told_apart_by_link_and_place():
    page = {"event": "entry", "url": "https://a/p", "item": 1, "index": 1, "title": "一"}
    assert child_entry(page)["key"] != child_entry({**page, "item": 2})["key"]
    assert child_entry(page)["key"] == child_entry({**page, "title": "changed"})["key"]
    assert child_entry(page)["title"] == "一"
    assert "id" not in child_entry({**page, "id": None})


def test_what_the_site_does_not_say_is_left_as_it_was():
    assert described({"title": "t", "duration": None}) == {"title": "t"}
    assert described({"duration": float("nan")}) == {}
