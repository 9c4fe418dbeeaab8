"""Which passes of a failpoint act."""

from __future__ import annotations

import pytest

from sluice_core.domain.errors import ConfigError, SluiceError
from sluice_core.runtime.failpoints import Failpoints

NAME = "run.claimed"


def acted(points, passes):
    """Numbers of the passes that acted, from 1."""
    found = []
    for number in range(1, passes + 1):
        try:
            points.hit(NAME)
        except SluiceError:
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("raise", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("raise*2", [1, 2]),
        ("raise/3", [3, 6, 9]),
        ("raise*2/3", [3, 6]),
        ("log", []),
    ],
)
def test_rules(tmp_path, rule, expected):
    assert acted(Failpoints(f"{NAME}={rule}", tmp_path / "hits"), 9) == expected
    assert (tmp_path / "hits").read_text().splitlines() == [NAME] * 9


def test_processes_count_together(tmp_path):
    one, other = (Failpoints(f"{NAME}=raise*1/3", tmp_path / "hits") for _ in range(2))
    assert acted(one, 2) == []
    assert acted(other, 2) == [1]


@pytest.mark.parametrize("spec", ["nowhere=kill", f"{NAME}=explode", f"{NAME}=kill*2"])
def test_wrong_rules(spec):
    with pytest.raises(ConfigError):
        Failpoints(spec)
