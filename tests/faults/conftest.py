"""A sample site for the tests of one process; systems are started by tests or modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sluice_testing.encodes import write_presets
from sluice_testing.logs import logged
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


@pytest.fixture
def encodes(site: SampleSite, tmp_path: Path) -> Mapping[str, str]:
    """Settings of a system that encodes the site's long file, and counts passes of failpoints."""
    return {
        "SLUICE_EGRESS_ALLOW": site.address(),
        "SLUICE_PRESETS_FILE": str(write_presets(tmp_path)),
        "SLUICE_FAILPOINTS_LOG": str(tmp_path / "passes"),
    }


class Said:
    """What processes of one test wrote: log lines of all of them, and passes of failpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, event: str) -> list[dict[str, Any]]:
        logs = [*self.folder.glob("*/test.log"), *self.folder.glob("*.log")]
        return [line for log in logs for line in logged(log, event)]

    def encoded(self, stage: str | None = None) -> Counter[int]:
        """Number of a segment -> how often it was encoded to its end, by runs or by help."""
        found = self.lines("segment_encoded")
        return Counter(line["number"] for line in found if stage in (None, line["stage"]))

    def begun(self) -> Counter[str]:
        """Failpoint -> segments of which something was encoded."""
        path = self.folder / "passes"
        return Counter(path.read_text().split() if path.exists() else [])


@pytest.fixture
def said(tmp_path: Path) -> Said:
    return Said(tmp_path)
