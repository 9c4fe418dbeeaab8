"""The fixture of the sample site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluice_testing.site import SampleSite

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sample_site() -> Iterator[SampleSite]:
    """A site on two loopback addresses, nothing booked yet; generated media is shared by all."""
    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as site:
        yield site
