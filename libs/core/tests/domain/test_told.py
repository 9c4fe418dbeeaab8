"""Figures as sites tell them."""

from __future__ import annotations

import math

import pytest

from sluice_core.domain.told import MAX_BYTES, MAX_SECONDS, seconds_of, size_of

NONSENSE = [None, "12", True, [], 0, -1, -0.5, math.nan, math.inf, -math.inf, 10**400]


@pytest.mark.parametrize("value", [*NONSENSE, MAX_BYTES + 1], ids=str)
def test_what_is_no_size_is_not_known(value: object) -> None:
    assert size_of(value) is None


@pytest.mark.parametrize("value", [*NONSENSE, MAX_SECONDS * 2], ids=str)
def test_what_is_no_length_is_not_known(value: object) -> None:
    assert seconds_of(value) is None


def test_what_may_be_true_is_believed() -> None:
    assert (size_of(12), size_of(12.9), size_of(MAX_BYTES)) == (12, 12, MAX_BYTES)
    assert (seconds_of(12), seconds_of(0.04)) == (12.0, 0.04)
