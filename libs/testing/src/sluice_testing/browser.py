"""A real browser for tests of the page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: No window, no sandbox of its own (containers have no user namespaces), and no calls home.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Tests click where a person would; a video that then stays still would be a fault of the page.
    "--autoplay-policy=no-user-gesture-required",
)


def chromium_path() -> str | None:
    """The browser of this machine."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def open_browser(path: str) -> Iterator[Browser]:
    """A running browser, ended after."""
    # Imported here: most tests need no browser, and the import costs them 0.3 s.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
