from __future__ import annotations

from sluice_core.domain.silence import Silence


def test_what_stands_still_is_silent_for_as_long_as_it_was_looked_at() -> None:
    silence = Silence(max_step=2.0)
    assert [silence.observe("beat 1", now) for now in (100.0, 101.0, 102.5)] == [0.0, 1.0, 2.5]


def test_a_sign_of_life_begins_anew() -> None:
    silence = Silence(max_step=2.0)
    silence.observe("beat 1", 100.0)
    silence.observe("beat 1", 102.0)
    assert silence.observe("beat 2", 103.0) == 0.0
    assert silence.observe("beat 2", 104.0) == 1.0


def test_who_did_not_look_can_not_judge() -> None:
    silence = Silence(max_step=2.0)
    silence.observe("beat 1", 100.0)
    # Suspended for an hour.
    assert silence.observe("beat 1", 3700.0) == 2.0
    silence.forget()
    assert silence.observe("beat 1", 3701.0) == 0.0
