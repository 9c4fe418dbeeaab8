"""Caps that only the whole system can show."""

from __future__ import annotations

import pytest

from sluice_testing.system import running


@pytest.fixture(scope="module")
def short_lists(world, tmp_path_factory):
    """A system that takes three entries of a list."""
    with running(
        tmp_path_factory.mktemp("short") / "data",
        SLUICE_EGRESS_ALLOW=world.address(),
        SLUICE_MAX_ENTRIES="3",
    ) as system:
        yield system


def test_a_list_that_is_longer_than_allowed(short_lists, world):
    job = short_lists.submit(world.url("/feed?n=300"), preset="original")
    [job] = short_lists.wait([job["id"]], timeout=60)
    assert job["children"]["total"] == 3
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "too_many_entries")
