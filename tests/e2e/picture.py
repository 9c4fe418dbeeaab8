"""Takes the README's pictures: `python tests/e2e/picture.py docs/page.png docs/operator.png`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sluice_testing.browser import chromium_path, open_browser
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running
from sluice_testing.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTH, HEIGHT = 1280, 960
STILL = (
    """() => document.getAnimations().forEach((one) => { one.pause(); one.currentTime = 900; })"""
)


def titled(site: SampleSite, title: str, media: str = "/mp4/plain.mp4") -> str:
    """A page with that title and that film."""
    return site.url(f"/pages/titled?title={quote(title)}&media={quote(media, safe='')}")


def fill(system: System, site: SampleSite) -> None:
    """Jobs in every state that people meet."""
    done = [
        system.submit(titled(site, "Sunrise over the harbour, in one take"), preset="720p"),
        system.submit(titled(site, "Café de nuit, épisode 42"), preset="audio-m4a"),
        system.submit(site.url("/collection?n=8&bad=5&title=Eight%20ways%20to%20tie%20a%20knot")),
        system.submit(site.url("/pages/video?media=/mp4/plain.mp4%3Ffail=404")),
    ]
    system.wait([job["id"] for job in done])
    running_now = [
        system.submit(
            titled(
                site, "How rivers find the sea", "/clips/1/river.mp4?bytes=9000000&throttle=600000"
            ),
            preset="original",
        ),
        system.submit(
            titled(
                site,
                "Lecture 7: Waves, springs and bells",
                "/clips/2/lecture.mp4?bytes=6000000&throttle=250000&length=chunked",
            ),
            preset="original",
        ),
    ]
    first = running_now[0]["id"]
    until(lambda: (system.job(first)["progress"]["percent"] or 0) > 35)


def take(browser: Browser, url: str, picture: Path) -> None:
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-GB"
    )
    page.goto(url)
    page.wait_for_selector("#live[data-state=on]")
    page.wait_for_selector(".job[data-status=DOWNLOADING] .bar[aria-valuenow]")
    page.locator(".kids > button").first.wait_for()
    # A fresh bar still glides to its place; the drifting one is stopped in view.
    page.wait_for_timeout(1200)
    page.evaluate(STILL)
    page.screenshot(path=picture)
    page.close()


def take_operator(browser: Browser, system: System, picture: Path) -> None:
    """The view for operators, with a paused queue and a dead letter."""
    system.http.post("/v1/queues/download.bulk/pause")
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-GB"
    )
    page.goto(f"{system.url}/#operate")
    page.wait_for_selector("#queues-rows tr.paused")
    page.wait_for_selector("#workers-rows tr")
    page.wait_for_selector("#audit-rows tr")
    page.screenshot(path=picture)
    page.close()


def main(picture: Path, operator: Path) -> None:
    """Start everything, take the pictures, stop everything."""
    path = chromium_path()
    if path is None:
        sys.exit("Chromium is not installed.")
    with tempfile.TemporaryDirectory() as folder, SampleSite() as site:
        allow = site.address()
        with running(Path(folder) / "data", SLUICE_EGRESS_ALLOW=allow) as system:
            fill(system, site)
            with open_browser(path) as browser:
                take(browser, system.url, picture)
                take_operator(browser, system, operator)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
