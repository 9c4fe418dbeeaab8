"""Caps that only the whole system can show."""

from __future__ import annotations


def test_a_list_that_is_longer_than_allowed(system, world):
    job = system.submit(world.url("/feed?n=300"), preset="original")
    [job] = system.wait([job["id"]])
    assert job["children"]["total"] == 3
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "too_many_entries")
