"""Pools on paper."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sluice_cli.commands.server import json_option
from sluice_cli.simulation import report
from sluice_cli.simulation.model import Result
from sluice_cli.simulation.scenarios import SCENARIOS, build


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--seed", default=1, show_default=True, help="Of all dice.")
@click.option(
    "--start-up",
    default=15,
    show_default=True,
    type=click.IntRange(0, 600),
    help="Seconds until a new worker takes work.",
)
@click.option(
    "--cooldown",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="Seconds until an empty pool goes to zero.",
)
@click.option("--max", "maximum", type=click.IntRange(1, 10_000), help="Most workers.")
@click.option("--picture", type=click.Path(path_type=Path), help="Draw it: PNG or SVG.")
@json_option
def simulate(
    scenarios: tuple[str, ...],
    *,
    seed: int,
    start_up: int,
    cooldown: float,
    maximum: int | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Play scaling on paper: burst, daily, poison, node-loss, or all of them.

    Compares the autoscaler's own decisions with scaling by the length of a Redis list, as KEDA
    does, and with a fixed number of workers. A job whose worker is taken away begins again.
    """
    results: dict[str, list[Result]] = {}
    titles = {name: build(name, seed=seed).title for name in scenarios or tuple(SCENARIOS)}
    for name, title in titles.items():
        results[name] = list(
            report.compare(name, seed=seed, start_up=start_up, cooldown=cooldown, maximum=maximum)
        )
        if as_json:
            for result in results[name]:
                click.echo(json.dumps(report.as_data(result)))
        else:
            _show(title, results[name])
    if picture is not None:
        from sluice_cli.simulation.picture import draw  # noqa: PLC0415  # its library is optional

        draw(results, titles, picture)
        click.echo(f"Drawn to {picture}.", err=True)


def _show(title: str, results: list[Result]) -> None:
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for number, column in enumerate(report.HEADER):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for result in results:
        table.add_row(*report.row(result))
    console = Console()
    # Whoever reads it from a pipe gets whole lines too.
    console = console if console.is_terminal else Console(width=120)
    console.print(table)
    console.print()
