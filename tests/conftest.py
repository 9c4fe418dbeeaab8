"""One browser for all tests of one process: Playwright's driver runs once in it, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sluice_testing.browser import chromium_path, open_browser
from sluice_testing.require import missing
from sluice_testing.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        missing("Chromium")
    # Imported here: most tests need no browser, and the import costs them 0.3 s.
    from playwright.sync_api import expect  # noqa: PLC0415

    # What a page shows in 5 s, as is usual, takes longer where tests share the cores.
    expect.set_options(timeout=PATIENCE * 1000)
    with open_browser(path) as opened:
        yield opened
