"""One running system and one sample site, shared by the tests of one process."""

from __future__ import annotations

import pytest

from sluice_testing.site import SampleSite
from sluice_testing.system import System, running


@pytest.fixture(scope="session")
def world() -> SampleSite:
    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as site:
        yield site


def allowed(site: SampleSite) -> str:
    """The site's exact addresses and ports, and nothing else."""
    return ",".join(site.url("", host=n).removeprefix("http://").rstrip("/") for n in (0, 1))


@pytest.fixture(scope="session")
def system(world: SampleSite, tmp_path_factory: pytest.TempPathFactory) -> System:
    with running(
        tmp_path_factory.mktemp("system") / "data", SLUICE_EGRESS_ALLOW=allowed(world)
    ) as started:
        yield started
