"""The simulator: exact where it can be counted by hand, and what it shows at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice_cli.commands.simulate import simulate
from sluice_cli.simulation.model import Job, Pool, Result, Scenario
from sluice_cli.simulation.report import clock, compare
from sluice_cli.simulation.scenarios import SCENARIOS, build
from sluice_cli.simulation.strategies import Fixed, Sluice
from sluice_core.domain.scaling import Behavior, Policy


def scenario(jobs: list[Job], **fields: object) -> Scenario:
    usual: dict[str, object] = {"horizon": 2_000, "maximum": 9, "fixed": 1}
    return Scenario("x", "x", jobs, **(usual | fields))  # type: ignore[arg-type]


def test_one_worker_by_hand() -> None:
    jobs = [Job(0, 10), Job(0, 10), Job(100, 5)]
    pool = Pool(scenario(jobs, horizon=200), "one", start_up=15)
    result = pool.run(Fixed(1))
    # Ready after 15 s; the second waits for the first; the third comes to an idle worker.
    assert sorted(result.waits) == [0, 15, 25]
    assert (result.done, result.last, result.pod_seconds) == (3, 105, 200)


def test_ours_by_hand() -> None:
    policy = Policy(
        minimum=0, maximum=9, target=1, cooldown=60, up=Behavior(0.0), down=Behavior(30.0)
    )
    result = Pool(scenario([Job(7, 50), Job(7, 50)]), "ours", start_up=10).run(Sluice(policy))
    assert result.waits == [10, 10]
    assert (result.most, result.done, result.interrupted) == (2, 2, 0)
    # Both are gone a while after the cooldown, and the simulation ends there.
    assert result.series[-1][1] <= 1
    assert result.pod_seconds < 2 * (60 + 60 + 30)


def test_a_job_whose_worker_is_taken_begins_again() -> None:
    class Taker:
        name = "taker"

        def turn(self, pool: Pool, now: int) -> None:
            if now == 0:
                pool.add(1, now)
            elif now == 6:
                pool.remove(next(iter(pool.workers.values())), now)
                pool.add(1, now)

    result = Pool(scenario([Job(0, 10)], horizon=60), "taker", start_up=1).run(Taker())
    assert (result.interrupted, result.in_vain, result.done, result.last) == (1, 5, 1, 17)


def test_poison_is_put_aside_after_three_workers() -> None:
    jobs = [Job(0, 5, poison=True)]
    result = Pool(scenario(jobs, horizon=300), "one", start_up=5).run(Fixed(1))
    assert (result.put_aside, result.in_vain, result.done) == (1, 15, 0)


@pytest.fixture(scope="module")
def played() -> dict[str, dict[str, Result]]:
    return {
        name: {
            result.strategy.partition(" ")[0]: result
            for result in compare(name, seed=1, start_up=15, cooldown=300, maximum=None)
        }
        for name in SCENARIOS
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_ours_ends_everything_and_interrupts_nothing(
    played: dict[str, dict[str, Result]], name: str
) -> None:
    ours = played[name]["sluice"]
    assert (ours.left, ours.interrupted) == (0, 0)
    assert ours.done + ours.put_aside == len(build(name, seed=1).jobs)


@pytest.mark.parametrize("name", SCENARIOS)
def test_list_length_takes_workers_that_run_something(
    played: dict[str, dict[str, Result]], name: str
) -> None:
    assert played[name]["LLEN"].interrupted > 0


def test_a_day_waits_less_than_by_list_length_and_costs_less_than_a_fixed_pool(
    played: dict[str, dict[str, Result]],
) -> None:
    day = played["daily"]
    assert day["sluice"].wait(0.95) < day["LLEN"].wait(0.95)
    assert day["sluice"].wait(0.95) < day["fixed"].wait(0.95)
    assert day["sluice"].pod_seconds < day["fixed"].pod_seconds


def test_the_same_seed_is_the_same_story(played: dict[str, dict[str, Result]]) -> None:
    again = next(compare("poison", seed=1, start_up=15, cooldown=300, maximum=None))
    assert again.series == played["poison"]["sluice"].series


def test_the_command_prints_a_line_for_each_and_draws(tmp_path: Path) -> None:
    told = CliRunner().invoke(simulate, ["poison", "node-loss"], catch_exceptions=False)
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert sum(line.strip().startswith(("sluice", "LLEN", "fixed")) for line in lines) == 6
    picture = tmp_path / "scaling.png"
    pytest.importorskip("matplotlib")
    drawn = CliRunner().invoke(
        simulate, ["node-loss", "--json", "--picture", str(picture)], catch_exceptions=False
    )
    rows = [json.loads(line) for line in drawn.stdout.splitlines()]
    assert [row["strategy"] for row in rows] == ["sluice", "LLEN", "fixed 20"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_scenario_that_is_none() -> None:
    told = CliRunner().invoke(simulate, ["flood"])
    assert told.exit_code == 2
    assert "'flood' is not one of" in told.output


@pytest.mark.parametrize(("seconds", "words"), [(45, "45 s"), (123, "2:03"), (3723, "1:02:03")])
def test_words_for_seconds(seconds: int, words: str) -> None:
    assert clock(seconds) == words
