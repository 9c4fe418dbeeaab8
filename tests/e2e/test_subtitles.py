"""Subtitles are files beside the video; one that can't be had costs nobody the video."""

from __future__ import annotations

import httpx
import pytest

PAGE = "/pages/video?subtitles=en,de,fr&media=/mp4/small.mp4"


@pytest.fixture(autouse=True)
def _clean(world):
    world.reset()
    yield
    world.reset()


def test_the_languages_that_were_asked_for_are_kept(system, world):
    job = system.submit(world.url(PAGE), preset="original", subtitles=["en", "de", "ja"])
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]) == ("SUCCESS", None)
    assert [file["kind"] for file in job["files"]] == ["video", "subtitle", "subtitle"]
    texts = {}
    for number, file in enumerate(job["files"][1:], start=1):
        assert file["content_type"] == "text/vtt"
        data = system.download(job, number)
        assert len(data) == file["bytes"]
        texts[file["name"].split(".")[-2]] = data
    served = {name: httpx.get(world.url(f"/subtitles/{name}.vtt")).content for name in ("en", "de")}
    assert texts == served


def test_languages_that_look_alike_are_kept_apart(system, world):
    languages = ["zh-Hans", "zh_Hans", "zh-hans"]
    page = f"/pages/video?subtitles={','.join(languages)}&media=/mp4/small.mp4"
    job = system.submit(world.url(page), preset="original", subtitles=languages)
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]) == ("SUCCESS", None)
    texts = {system.download(job, number) for number in (1, 2, 3)}
    assert texts == {httpx.get(world.url(f"/subtitles/{name}.vtt")).content for name in languages}
    assert len({file["name"].lower() for file in job["files"]}) == 4


def test_one_that_is_missing_is_named_and_the_video_is_kept(system, world):
    world.control("/subtitles/de.vtt", fail=404)
    job = system.submit(world.url(PAGE), preset="original", subtitles=["de", "fr"], force=True)
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "incomplete")
    assert "subtitles are missing: de" in job["error"]["message"]
    kinds = sorted(file["kind"] for file in job["files"])
    assert kinds == ["subtitle", "video"]


def test_those_beyond_the_cap_are_named_and_the_others_are_kept(system, world):
    letters = "abcdefghij"
    languages = [f"x{a}{b}" for a in letters for b in letters] + [f"y{a}" for a in letters[:7]]
    page = f"/pages/video?subtitles={','.join(languages)}&media=/mp4/small.mp4"
    job = system.submit(world.url(page), preset="original", subtitles=["x.*", "y.*"], force=True)
    [job] = system.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "incomplete")
    said = "subtitles are missing: ya, yb, yc, yd, ye and 2 more (too_many_entries)"
    assert said in job["error"]["message"]
    assert [file["kind"] for file in job["files"]].count("subtitle") == 100


def test_nobody_gets_what_was_not_asked_for(system, world):
    job = system.submit(world.url(PAGE), preset="original", force=True)
    [job] = system.wait([job["id"]])
    assert [file["kind"] for file in job["files"]] == ["video"]
    assert world.stats("/subtitles/en.vtt").requests == 0
