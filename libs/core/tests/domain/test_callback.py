"""When a callback is tried again, and how it is signed."""

from __future__ import annotations

import hashlib
import hmac
from random import Random

import pytest

from sluice_core.domain.callback import (
    DELAYS,
    GIVE_UP_AFTER,
    JITTER,
    MAX_TRIES,
    callback_id,
    next_try,
    signature,
)


@pytest.mark.parametrize("tries", range(1, MAX_TRIES))
def test_each_further_try_waits_longer(tries: int) -> None:
    for seed in range(20):
        due = next_try(tries=tries, ended_at=1000.0, now=1000.0, rng=Random(seed))
        assert due is not None
        delay = DELAYS[tries - 1]
        assert delay * (1 - JITTER) <= due - 1000.0 <= delay * (1 + JITTER)


def test_after_eight_tries_it_is_given_up() -> None:
    assert MAX_TRIES == 8
    assert next_try(tries=8, ended_at=0.0, now=1.0, rng=Random(1)) is None


def test_all_tries_fit_into_a_day() -> None:
    assert sum(DELAYS) * (1 + JITTER) < GIVE_UP_AFTER


@pytest.mark.parametrize(("retry_after", "due"), [(5000.0, 6000.0), (None, None), (90_000.0, None)])
def test_the_receiver_may_ask_for_time(retry_after: float | None, due: float | None) -> None:
    found = next_try(tries=1, ended_at=0.0, now=1000.0, rng=Random(1), retry_after=retry_after)
    if retry_after is None:
        assert found is not None
        assert found < 1013.0
    else:
        assert found == due


def test_nothing_is_sent_a_day_after_the_end() -> None:
    assert next_try(tries=1, ended_at=0.0, now=GIVE_UP_AFTER, rng=Random(1)) is None


def test_the_signature_covers_time_and_body() -> None:
    made = signature("key", b'{"a":1}', 1234.9)
    expected = hmac.new(b"key", b'1234.{"a":1}', hashlib.sha256).hexdigest()
    assert made == f"t=1234,v1={expected}"


def test_the_id_names_job_and_state() -> None:
    assert callback_id("J", "SUCCESS") == "J:SUCCESS"
