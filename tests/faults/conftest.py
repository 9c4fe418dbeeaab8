"""A sample site for the tests of one process; each test starts a system of its own."""

from __future__ import annotations

import pytest

from sluice_testing.site import SampleSite


@pytest.fixture(scope="session")
def world() -> SampleSite:
    with SampleSite() as site:
        yield site
