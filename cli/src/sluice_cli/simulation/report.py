"""Strategies side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice_cli.simulation.model import Pool, Result, Strategy
from sluice_cli.simulation.scenarios import build
from sluice_cli.simulation.strategies import Fixed, ListLength, Sluice
from sluice_core.domain.scaling import Policy

HEADER = (
    "strategy", "done", "left", "aside", "interrupted", "in vain",
    "wait p50", "p95", "longest", "last done", "most", "pod-hours",
)  # fmt: skip


def compare(
    name: str, *, seed: int, start_up: int, cooldown: float, maximum: int | None
) -> Iterator[Result]:
    """Play one scenario with every strategy.

    Args:
        name: of the scenario.
        seed: of all dice.
        start_up: seconds that a new worker takes.
        cooldown: seconds until an empty pool goes to zero.
        maximum: of workers; None: the scenario's own.

    """
    scenario = build(name, seed=seed)
    policy = Policy(minimum=0, maximum=maximum or scenario.maximum, target=1, cooldown=cooldown)
    strategies: tuple[Strategy, ...] = (
        Sluice(policy),
        ListLength(policy),
        Fixed(scenario.fixed),
    )
    for strategy in strategies:
        fresh = build(name, seed=seed)
        yield Pool(fresh, strategy.name, start_up=start_up).run(strategy)


def row(result: Result) -> tuple[str, ...]:
    """Under `HEADER`."""
    return (
        result.strategy,
        f"{result.done:,}",
        f"{result.left:,}",
        f"{result.put_aside:,}",
        f"{result.interrupted:,}",
        clock(result.in_vain),
        clock(result.wait(0.5)),
        clock(result.wait(0.95)),
        clock(result.wait(1.0)),
        clock(result.last),
        str(result.most),
        f"{result.pod_seconds / 3_600:.1f}",
    )


def as_data(result: Result) -> dict[str, Any]:
    """For programs; seconds."""
    return {
        "scenario": result.scenario,
        "strategy": result.strategy,
        "done": result.done,
        "left": result.left,
        "put_aside": result.put_aside,
        "interrupted": result.interrupted,
        "in_vain_seconds": result.in_vain,
        "wait_seconds": {
            "p50": result.wait(0.5),
            "p95": result.wait(0.95),
            "max": result.wait(1.0),
        },
        "last_done_seconds": result.last,
        "most_replicas": result.most,
        "pod_hours": round(result.pod_seconds / 3_600, 3),
    }


def clock(seconds: int) -> str:
    """E.g. `1:02:03`, `2:03`, `45 s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}" if minutes else f"{rest} s"
