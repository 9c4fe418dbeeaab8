"""One browser for all tests of one process: Playwright's driver runs once in it, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sluice_testing.browser import chromium_path, open_browser
from sluice_testing.require import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        missing("Chromium")
    with open_browser(path) as opened:
        yield opened
