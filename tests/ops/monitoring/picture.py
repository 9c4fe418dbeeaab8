"""`python -m tests.ops.monitoring.picture`: docs/dashboard.png, drawn from the overview's queries.

Works the whole installation for two minutes under a real Prometheus, with links that succeed, fail
and are tried again.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import matplotlib as mpl

from sluice_core.adapters.db import migrate
from sluice_core.adapters.db.engine import open_engine
from sluice_testing.site import SampleSite

from .conftest import Watched, _start
from .dashboards import document

PICTURE = Path(__file__).parents[3] / "docs/dashboard.png"
#: Seconds of work, and between two rounds of links.
LENGTH, EVERY = 120.0, 4.0
#: Panels in a row, and those that are drawn.
COLUMNS = 3
SHOWN = (
    "Jobs ended", "Time to the end", "Jobs under way by state", "Who waits",
    "How long the oldest waits", "Failures by code", "Retries by code", "Runs under way",
    "Download",
)  # fmt: skip


def main() -> None:
    """Run, draw, stop."""
    with tempfile.TemporaryDirectory(prefix="sluice-picture-") as name, ExitStack() as stack:
        folder = Path(name)
        template = folder / "template.db"
        engine = open_engine(f"sqlite:///{template}")
        migrate.upgrade(engine)
        engine.dispose()
        world = stack.enter_context(SampleSite())
        watched = _start(stack, folder, world, template)
        watched.prometheus.await_result("count(up == 1) >= 5", patience=120)
        began = time.time()
        _work(watched)
        _draw(watched, began)


def _work(watched: Watched) -> None:
    number = 0
    until = time.monotonic() + LENGTH
    while time.monotonic() < until:
        number += 1
        for path in (
            f"/clips/{number}/good.mp4?bytes=900000&throttle=300000",
            f"/clips/{number + 1000}/more.mp4",
            f"/webm/vp9.webm?n={number}" if number % 3 == 0 else f"/clips/{number + 2000}/x.mp4",
            f"/clips/{number + 3000}/bad.mp4?fail={404 if number % 2 else 500}",
        ):
            watched.submit(path, preset="480p" if "webm" in path else "best")
        time.sleep(EVERY)


def _draw(watched: Watched, began: float) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # after the choice of what draws

    panels = {panel["title"]: panel for panel in document("overview")["panels"]}
    rows = -(-len(SHOWN) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(15, 3.2 * rows), layout="constrained")
    for title, ax in zip(SHOWN, axes.flat, strict=True):
        _panel(watched, panels[title], ax, began)
    figure.suptitle("Sluice / Overview", fontsize=13)
    figure.savefig(PICTURE, dpi=70)


def _panel(watched: Watched, panel: dict[str, Any], ax: Any, began: float) -> None:
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", "15s").replace("$job", ".*")
        found = watched.prometheus.series(expression, start=began, end=time.time(), step=2)
        for one in found:
            points = [(float(t) - began, float(v)) for t, v in one["values"]]
            legend = target["legendFormat"]
            for label, value in one["metric"].items():
                legend = legend.replace(f"{{{{{label}}}}}", value)
            ax.plot(*zip(*points, strict=True), label=legend)
    ax.set_title(f"{panel['title']} ({panel['fieldConfig']['defaults']['unit']})", fontsize=9)
    ax.set_ylim(bottom=0)
    ax.tick_params(labelsize=7)
    ax.grid(alpha=0.3)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=6, loc="upper left")


if __name__ == "__main__":
    main()
