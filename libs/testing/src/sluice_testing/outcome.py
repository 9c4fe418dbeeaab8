"""What must be true once every job has ended, whatever was broken on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sluice_testing.site import SampleSite
from sluice_testing.system import System
from sluice_testing.waiting import PATIENCE, until


def assert_all_well(
    system: System,
    site: SampleSite,
    jobs: Sequence[Mapping[str, Any]],
    links: Sequence[str],
    *,
    timeout: float = PATIENCE,
    before: int = 0,
) -> None:
    """All jobs end in SUCCESS with the site's own bytes, one artifact each, and nothing is left.

    Args:
        jobs: as submitted with preset `original`.
        links: path of each job's link at the site.
        timeout: seconds until the last must have ended.
        before: artifacts that were in storage when the first was submitted.
    """
    ended = system.wait([job["id"] for job in jobs], timeout=timeout)
    assert [(j["status"], j["error"]) for j in ended] == [("SUCCESS", None)] * len(ended)  # noqa: S101  # an assertion for tests
    for job, link in zip(ended, links, strict=True):
        assert [f["sha256"] for f in job["files"]] == [site.sha256(link)]  # noqa: S101
    assert_nothing_left(system, artifacts=before + len(ended))


def assert_nothing_left(system: System, *, artifacts: int) -> None:
    """Storage holds the artifacts alone, and no scratch folder is left."""
    until(
        lambda: len(system.stored()) == artifacts,
        why=lambda: f"in storage are {system.stored()}, and {artifacts} artifacts",
    )
    scratch = system.data / "scratch"

    def folders() -> list[str]:
        return [path.name for path in scratch.iterdir() if path.name.count(".") == 2]  # noqa: PLR2004  # job.stage.epoch

    until(lambda: not folders(), why=lambda: f"left in scratch: {folders()}")
