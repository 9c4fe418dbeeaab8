"""What happens to a pool: four stories, the same for every strategy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from sluice_cli.simulation.model import Job, Scenario

HOUR = 3_600
DAY = 24 * HOUR


def burst(rng: random.Random) -> Scenario:
    """10,000 links at once."""
    jobs = [Job(60, _length(rng, 30)) for _ in range(10_000)]
    return Scenario("burst", "10,000 links at once", jobs, 4 * HOUR, maximum=60, fixed=30)


def daily(rng: random.Random) -> Scenario:
    """A day with a busy evening and a dead night."""
    jobs = []
    for second in range(DAY):
        # Nothing from 2 to 5, most at 20 o'clock: up to 15 a minute.
        hour = second / HOUR
        rate = 0.0 if 2 <= hour < 5 else 0.25 * max(0.0, math.cos((hour - 20) / 24 * 2 * math.pi))  # noqa: PLR2004  # o'clock
        if rng.random() < rate + (0.002 if rate else 0.0):
            jobs.append(Job(second, _length(rng, 60)))
    return Scenario(
        "daily", "one day, busy in the evening", jobs, DAY + 2 * HOUR, maximum=40, fixed=12
    )


def poison(rng: random.Random) -> Scenario:
    """300 links that bring their worker down, amid good ones."""
    good = [Job(second, _length(rng, 40)) for second in range(0, 2 * HOUR, 8)]
    bad = [Job(1_800 + rng.randrange(30), 5, poison=True) for _ in range(300)]
    return Scenario(
        "poison", "300 links that kill their worker", [*good, *bad], 3 * HOUR, maximum=30, fixed=10
    )


def node_loss(rng: random.Random) -> Scenario:
    """Half of all workers gone at once, twice."""
    jobs = [Job(second, _length(rng, 90)) for second in range(0, 2 * HOUR, 6)]
    return Scenario(
        "node-loss",
        "half of the workers lost, twice",
        jobs,
        4 * HOUR,
        maximum=40,
        fixed=20,
        losses=[(2_400, 0.5), (4_800, 0.5)],
    )


SCENARIOS: dict[str, Callable[[random.Random], Scenario]] = {
    "burst": burst,
    "daily": daily,
    "poison": poison,
    "node-loss": node_loss,
}


def build(name: str, *, seed: int) -> Scenario:
    """The scenario, the same for the same seed; its jobs are used up by one simulation."""
    made = SCENARIOS[name](random.Random(seed))  # noqa: S311  # a dice, no secret
    return replace(made, jobs=tuple(made.jobs))


def _length(rng: random.Random, median: float) -> int:
    """Seconds of work: most are short, a few are very long."""
    return max(1, min(40 * round(median), round(rng.lognormvariate(math.log(median), 0.9))))
