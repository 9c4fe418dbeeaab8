"""A sample site for the tests of one process; systems are started by tests or modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice_testing.site import SampleSite


@pytest.fixture(scope="session")
def world() -> SampleSite:
    with SampleSite() as site:
        yield site


@pytest.fixture
def site(world: SampleSite) -> Iterator[SampleSite]:
    """The same, without what other tests have set and counted."""
    world.reset()
    yield world
    world.reset()


@pytest.fixture
def shared(env, postgres_url, weed_server, redis_url):
    """Settings of machines that share nothing but the three stores."""
    return {
        **env,
        "SLUICE_DATABASE_URL": postgres_url,
        "SLUICE_STORAGE_URL": weed_server.new_bucket(),
        "SLUICE_REDIS_URL": redis_url,
    }
