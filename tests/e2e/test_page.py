"""The page as people use it, in a real browser."""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from sluice_testing.site import NAMES

numbers = itertools.count(1)

#: Notes each change of each card as it is painted: [id, status, percent or null, words].
WATCH = """() => {
  window.seen = [];
  const note = () => {
    for (const card of document.querySelectorAll("#jobs > .job")) {
      const bar = card.querySelector(":scope > .bar");
      const now = bar?.getAttribute("aria-valuenow");
      const line = [card.dataset.id, card.dataset.status, now == null ? null : Number(now),
                    card.querySelector(".step").textContent];
      const last = window.seen.findLast((one) => one[0] === line[0]);
      if (JSON.stringify(last) !== JSON.stringify(line)) window.seen.push(line);
    }
  };
  new MutationObserver(note).observe(document.querySelector("#jobs"),
    { subtree: true, childList: true, attributes: true, characterData: true });
}"""
MORE_OR_ALL = """shown => document.querySelectorAll("#jobs > .job").length !== shown
  || document.querySelector("#more").hidden"""
#: Cards of the jobs that wait for ever, in the order of the page.
WAITING = """() => [...document.querySelectorAll("#jobs > .job")]
  .filter((card) => card.querySelector(".title").title.endsWith("m=1"))
  .map((card) => card.dataset.id)"""
ORDER = ["PENDING", "PARSING", "DOWNLOADING", "MERGING", "SUCCESS"]


def clip(world, size=300_000, speed=None):
    """A link that nobody asked for yet."""
    slow = f"&throttle={speed}" if speed else ""
    return world.url(f"/clips/{next(numbers) + 5000}/clip.mp4?bytes={size}{slow}")


def endless(world):
    """One that goes on for longer than a test may take, unless it is canceled."""
    return clip(world, 90_000_000, 150_000)


def card_of(page, link):
    """The newest card of a link."""
    return page.locator(f"#jobs > .job:has(> .head .title[title={css(link)}])").first


def css(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\a ")
    return f'"{escaped}"'


def hand_in(page, *links, preset="original"):
    page.fill("#links", "\n".join(links))
    page.select_option("#preset", preset)
    page.click("#go")


def reaches(card, status):
    expect(card).to_have_attribute("data-status", status)


def test_gaps_are_allowed_by_a_tick_and_told_on_the_card(page, world):
    link = world.url(f"/broken/hls/master.m3u8?t={next(numbers)}")
    page.check("#allow-gaps")
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "PARTIAL")
    expect(card.locator(".why")).to_contain_text("1 of 4 fragments is missing: 0:02-0:03")
    expect(card.get_by_role("button", name="Try again")).to_be_visible()


def test_three_links_become_files_and_percent_never_goes_back(page, world):
    page.evaluate(WATCH)
    links = [
        clip(world, 600_000, 150_000),
        clip(world, 600_000, 150_000),
        world.url(f"/hls/many/12.m3u8?t={next(numbers)}"),
    ]
    hand_in(page, *links, preset="720p")
    expect(page.locator("#notes")).to_have_text("3 links accepted.")
    expect(page.locator("#links")).to_have_value("")
    for link in links:
        reaches(card_of(page, link), "SUCCESS")
    seen = page.evaluate("() => window.seen")
    for link in links:
        own = [line for line in seen if line[0] == card_of(page, link).get_attribute("data-id")]
        states = [line[1] for line in own]
        assert states == sorted(states, key=ORDER.index)
        assert len(set(states)) >= 3
        for status in set(states):
            percents = [line[2] for line in own if line[1] == status and line[2] is not None]
            assert percents == sorted(percents)
    moved = {line[2] for line in seen if line[1] == "DOWNLOADING"}
    assert len(moved) >= 4, "progress was hardly seen"


def test_a_bad_link_stays_in_the_field_with_its_reason(page, world):
    good = clip(world)
    hand_in(page, good, "ftp://example.com/a")
    expect(page.locator("#notes p.bad")).to_contain_text("ftp://example.com/a: ")
    expect(page.locator("#links")).to_have_value("ftp://example.com/a")
    reaches(card_of(page, good), "SUCCESS")


def test_many_bad_links_are_counted_and_told_what_to_do(page):
    hand_in(page, *(f"http://10.0.0.{number}/a" for number in range(1, 16)))
    bad = page.locator("#notes p.bad")
    expect(bad).to_have_count(13)
    expect(bad.first).to_contain_text("SLUICE_EGRESS_ALLOW")
    expect(bad.last).to_have_text("And 3 more.")


def test_what_is_refused_is_told_in_sight_of_its_card(page, world):
    page.set_viewport_size({"width": 800, "height": 160})
    link = endless(world)
    hand_in(page, link)
    cancel = card_of(page, link).get_by_label("Cancel")
    refusing = "**/cancel"
    page.route(refusing, lambda route: route.fulfill(status=409, json={"detail": "Not now."}))
    cancel.click()
    expect(page.locator("#notes")).to_have_text("Not now.")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator("#notes")).to_be_in_viewport()
    page.unroute(refusing)
    cancel.click()
    expect(page.locator("#notes")).to_be_empty()


def test_the_keyboard_stays_at_its_place_when_a_card_goes(page, world):
    links = [clip(world) for _ in range(2)]
    hand_in(page, *links)
    last, first = (card_of(page, link) for link in links)
    for card in (first, last):
        reaches(card, "SUCCESS")
    first.get_by_label("Delete", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(first).to_have_count(0)
    expect(last.get_by_role("button").first).to_be_focused()


def test_cancel_retry_delete(page, world):
    link = endless(world)
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "DOWNLOADING")
    card.get_by_label("Cancel").click()
    reaches(card, "CANCELED")
    card.get_by_label("Try again").click()
    reaches(card, "DOWNLOADING")
    card.get_by_label("Cancel").click()
    reaches(card, "CANCELED")
    card.get_by_label("Delete", exact=True).click()
    expect(card).to_be_visible()
    card.get_by_label("Press again to delete").click()
    expect(card).to_have_count(0)


def test_a_failure_says_what_happened_and_what_helps(page, world):
    link = world.url(f"/mp4/plain.mp4?fail=404&n={next(numbers)}")
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "FAILED")
    expect(card.locator(".step")).to_have_text("failed")
    expect(card.locator(".why b")).to_have_text(re.compile(r"\w.*\."))
    expect(card.locator(".why span")).to_have_text(re.compile(r"\w{3}.*"))
    expect(card.get_by_label("Try again")).to_be_visible()


@pytest.mark.parametrize("title", [NAMES[0], NAMES[1], NAMES[2], "<script>alert(1)</script>"])
def test_any_title_is_shown_as_it_is(page, world, title):
    link = world.url(f"/pages/titled?title={quote(title, safe='')}&n={next(numbers)}")
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "SUCCESS")
    expect(card.locator(".title")).to_have_text(title)
    assert page.locator("#jobs script").count() == 0


def test_a_collection_opens(page, world):
    link = world.url(f"/collection?n=4&bad=3&t={next(numbers)}")
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "PARTIAL")
    toggle = card.locator(".kids > button")
    expect(toggle).to_have_text("4 entries, 3 done, 1 failed")
    expect(card.locator(".kids .job")).to_have_count(0)
    toggle.click()
    expect(card.locator(".kids .job")).to_have_count(4)
    states = [kid.get_attribute("data-status") for kid in card.locator(".kids .job").all()]
    assert states == ["SUCCESS", "SUCCESS", "FAILED", "SUCCESS"]
    toggle.click()
    expect(card.locator(".kids .job")).to_have_count(0)


def test_download_and_play(page, world):
    link = world.url(f"/mp4/plain.mp4?n={next(numbers)}")
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "SUCCESS")
    with page.expect_download() as waiting:
        card.get_by_label("Download plain.mp4").click()
    saved = waiting.value
    assert saved.suggested_filename == "plain.mp4"
    digest = hashlib.sha256(Path(saved.path()).read_bytes()).hexdigest()
    assert digest == world.sha256("/mp4/plain.mp4")
    card.get_by_label("Play plain.mp4").click()
    expect(page.locator("#player")).to_be_visible()
    page.wait_for_function("() => document.querySelector('#player video').currentTime > 0.5")
    page.get_by_label("Close").click()
    expect(page.locator("#player video")).to_have_count(0)


def test_it_comes_back_after_the_api(page, world, system):
    link = clip(world, 2_400_000, 150_000)
    hand_in(page, link)
    card = card_of(page, link)
    reaches(card, "DOWNLOADING")
    system.kill("api")
    expect(page.locator("#live-words")).to_have_text("reconnecting")
    expect(page.locator("#live-words")).to_have_text("live")
    reaches(card, "SUCCESS")


def test_a_thousand_jobs(page, world, system):
    links = [
        {"url": world.url(f"/clips/{n}/c.mp4?m=1"), "not_before": "2099-01-01T00:00:00Z"}
        for n in range(1000)
    ]
    answer = system.http.post("/v1/jobs:batch", json={"jobs": links})
    made = [line["id"] for line in answer.json()["results"]]
    assert len(set(made)) == 1000
    # They wait for ever, cost nothing, and end with the system.
    with page.expect_response(re.compile(r"/v1/jobs\?.*&q=")):
        page.fill("#search", world.url("/clips/"))
    # The answer is here, and may not be shown yet: what counts is what the page has in the end.
    while len(ids := page.evaluate(WAITING)) < 1000:
        before = page.locator("#jobs > .job").count()
        page.click("#more")
        page.wait_for_function(MORE_OR_ALL, arg=before)
    assert len(set(ids)) == len(ids) == 1000
    assert ids == sorted(ids, reverse=True)
