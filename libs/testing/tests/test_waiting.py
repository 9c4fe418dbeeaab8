"""What waits and measures in tests must itself be able to fail."""

from __future__ import annotations

import pytest

from sluice_testing.waiting import fastest, until


def test_it_waits_for_something_true_and_returns_it() -> None:
    answers = [0, None, "", "here"]
    assert until(lambda: answers.pop(0)) == "here"


#: Seconds of what is waited for in vain.
SOON = 0.01


def test_what_never_comes_is_a_timeout_with_a_reason() -> None:
    with pytest.raises(TimeoutError, match="the film is late"):
        until(lambda: False, timeout=SOON, why="the film is late")


@pytest.mark.parametrize(
    ("times", "least", "left"),
    [
        ([1.0, 1.0], 1.0, 1),
        ([9.0, 3.0, 1.0, 1.0], 1.0, 1),
        ([9.0, 3.0, 4.0, 1.0], 3.0, 1),
    ],
)
def test_a_time_counts_as_too_long_when_it_always_is(
    times: list[float], least: float, left: int
) -> None:
    assert fastest(lambda: times.pop(0), below=2, tries=3) == least
    assert len(times) == left
