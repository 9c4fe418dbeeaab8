from __future__ import annotations

import pytest

from sluice_cli.supervisor.backoff import HEALTHY, LONGEST, Backoff


def test_waits_double_up_to_a_cap() -> None:
    waits, backoff = [], Backoff()
    for _ in range(9):
        backoff, wait = backoff.ended(code=1, uptime=0.1)
        waits.append(wait)
    assert waits == [0.5, 1.0, 2.0, 4.0, *[LONGEST] * 5]


def test_a_healthy_stretch_starts_over() -> None:
    _, wait = Backoff(6).ended(code=-9, uptime=HEALTHY)
    assert wait == 0.5


@pytest.mark.parametrize(("uptime", "wait"), [(100.0, 0.0), (0.1, 0.5)])
def test_retired_is_replaced_at_once_unless_it_never_worked(uptime: float, wait: float) -> None:
    assert Backoff().ended(code=0, uptime=uptime)[1] == wait
