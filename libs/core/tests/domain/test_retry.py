from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.errors import CODES, ErrorClass, SluiceError
from sluice_core.domain.retry import (
    MAX_DELAY,
    MAX_RETRY_AFTER,
    GiveUp,
    RetryIn,
    decide,
)


class Top(Random):
    """Always the largest value: the ceiling of the jitter."""

    def uniform(self, a: float, b: float) -> float:
        del a
        return b


def ceiling(tries: int, max_tries: int = 20) -> RetryIn | GiveUp:
    return decide(SluiceError(code="network"), tries=tries, max_tries=max_tries, rng=Top())


@pytest.mark.parametrize("code", CODES)
def test_only_transient_failures_are_tried_again(code: str) -> None:
    decision = decide(SluiceError(code=code), tries=1, max_tries=4, rng=Random(1))
    if CODES[code].error_class is ErrorClass.TRANSIENT:
        assert isinstance(decision, RetryIn)
    else:
        assert decision == GiveUp(exhausted=False)


def test_the_ceiling_doubles_up_to_ten_minutes() -> None:
    delays = [ceiling(n) for n in range(1, 12)]
    expected = [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert delays == [RetryIn(float(d)) for d in expected]


def test_a_full_disk_is_given_time_to_be_swept() -> None:
    error = SluiceError(code="disk_full")
    delays = [decide(error, tries=n, max_tries=4, rng=Top()) for n in range(1, 4)]
    assert delays == [RetryIn(10.0), RetryIn(20.0), RetryIn(40.0)]


@pytest.mark.parametrize(
    ("code", "max_tries", "last"),
    [("network", 4, 4), ("network", 2, 2), ("internal", 4, 3), ("internal", 2, 2),
     ("transcode_failed", 4, 2), ("live_not_started", 9, 5)],
)  # fmt: skip
def test_tries_end(code: str, max_tries: int, last: int) -> None:
    error = SluiceError(code=code)
    for tries in range(1, last):
        assert isinstance(decide(error, tries=tries, max_tries=max_tries, rng=Random(1)), RetryIn)
    for tries in (last, last + 1):
        ended = decide(error, tries=tries, max_tries=max_tries, rng=Random(1))
        assert ended == GiveUp(exhausted=True)


@pytest.mark.parametrize(("code", "runs"), [("overloaded", 20), ("storage_error", 6)])
def test_what_is_ours_costs_no_try_until_it_has_lasted(code: str, runs: int) -> None:
    error = SluiceError(code=code)

    def after(free: int, tries: int) -> RetryIn | GiveUp:
        return decide(error, tries=tries, max_tries=2, rng=Top(), free=free)

    delays = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, *[600.0] * 14][:runs]
    expected = [RetryIn(delay, counted=False) for delay in delays]
    assert [after(n, 1) for n in range(runs)] == expected
    assert [after(runs, tries) for tries in (1, 2)] == [RetryIn(10.0), GiveUp(exhausted=True)]


@pytest.mark.parametrize("seconds", [0.0, 2.0, 700.0, MAX_RETRY_AFTER])
def test_what_the_site_asks_for_wins(seconds: float) -> None:
    error = SluiceError(code="rate_limited", retry_after=seconds)
    decision = decide(error, tries=1, max_tries=4, rng=Random(1))
    assert isinstance(decision, RetryIn)
    assert seconds <= decision.delay <= seconds + 1


def test_too_much_patience_is_refused() -> None:
    error = SluiceError(code="rate_limited", retry_after=MAX_RETRY_AFTER + 1)
    assert decide(error, tries=1, max_tries=4, rng=Random(1)) == GiveUp(exhausted=False)


def test_asking_for_patience_makes_no_more_tries() -> None:
    error = SluiceError(code="rate_limited", retry_after=1)
    assert decide(error, tries=4, max_tries=4, rng=Random(1)) == GiveUp(exhausted=True)


def test_a_class_given_by_the_raiser_decides() -> None:
    transient = SluiceError(code="forbidden", error_class=ErrorClass.TRANSIENT)
    assert isinstance(decide(transient, tries=1, max_tries=4, rng=Random(1)), RetryIn)
    permanent = SluiceError(code="network", error_class=ErrorClass.PERMANENT)
    assert decide(permanent, tries=1, max_tries=4, rng=Random(1)) == GiveUp(exhausted=False)


@given(tries=st.integers(1, 19), seed=st.integers())
def test_jitter_is_full_and_bounded(tries: int, seed: int) -> None:
    error = SluiceError(code="network")
    decision = decide(error, tries=tries, max_tries=20, rng=Random(seed))
    assert isinstance(decision, RetryIn)
    assert 0 <= decision.delay <= min(MAX_DELAY, 2.0 * 2 ** (tries - 1))


def test_jitter_spreads_over_the_whole_range() -> None:
    rng = Random(7)
    error = SluiceError(code="network")
    drawn = [decide(error, tries=10, max_tries=20, rng=rng) for _ in range(400)]
    delays = sorted(d.delay for d in drawn if isinstance(d, RetryIn))
    assert delays[0] < 30
    assert delays[-1] > 570
    assert 240 < delays[200] < 360
