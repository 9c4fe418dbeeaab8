"""Replicas and what waits, over time, for every scenario; matplotlib may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice_cli.exits import Exit, Stop
from sluice_cli.simulation.model import Result

_COLORS = ("#1b7f5c", "#c2410c", "#64748b")


def draw(results: Mapping[str, Sequence[Result]], titles: Mapping[str, str], path: Path) -> None:
    """Write a picture, PNG or SVG by the path's ending.

    Raises:
        Stop: matplotlib is not installed, or the file can't be written.

    """
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        plots: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError as exc:
        raise Stop(Exit.WRONG_USE, "--picture needs matplotlib: pip install matplotlib.") from exc
    figure, rows = plots.subplots(
        len(results), 2, figsize=(11, 2.6 * len(results)), squeeze=False, sharex="row"
    )
    for (left, right), (name, of_scenario) in zip(rows, results.items(), strict=True):
        for result, color in zip(of_scenario, _COLORS, strict=True):
            hours = [point[0] / 3_600 for point in result.series]
            left.plot(hours, [p[1] for p in result.series], color=color, label=result.strategy)
            right.plot(hours, [p[2] for p in result.series], color=color, label=result.strategy)
        left.set_title(f"{titles[name]}: workers", fontsize=9, loc="left")
        right.set_title("waiting jobs", fontsize=9, loc="left")
        for axes in (left, right):
            axes.set_xlabel("hours", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.grid(alpha=0.3)
            axes.set_ylim(bottom=0)
        left.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=90)
    except (OSError, ValueError) as exc:
        raise Stop(Exit.WRONG_USE, f"{path} can't be written: {exc}.") from exc
    finally:
        plots.close(figure)
