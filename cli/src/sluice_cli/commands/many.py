"""Work on many rows: one after the other by name, or by filter until none remains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from sluice_cli.client.api import Api, RefusedError
from sluice_cli.exits import Exit, Stop


def one_by_one(names: Iterable[str], act: Callable[[str], str]) -> None:
    """Do something to each; what is refused is told, and keeps nobody after it waiting.

    Args:
        names: ids and the like.
        act: does it to one, and says what to print behind its name.

    Raises:
        Stop: one or more were refused.

    """
    refused = False
    for name in names:
        try:
            words = act(name)
        except RefusedError as exc:
            refused = True
            click.echo(f"sluice: {name}: {exc.code}: {exc}", err=True)
        else:
            click.echo(f"{name} {words}")
    if refused:
        raise Stop(Exit.WRONG_USE)


def work_off(api: Api, path: str, filter_: dict[str, Any], *, done: str) -> None:
    """Ask until nothing that fits remains, or nothing more can be done; prints the counts."""
    total = refused = 0
    while True:
        answer = api.post(path, {"filter": filter_})
        total += answer["done"]
        refused = answer["refused"]
        if not answer["remaining"] or not answer["done"]:
            break
        click.echo(f"{total} {done}, {answer['remaining']} to go", err=True)
    more = f", {refused} refused" if refused else ""
    click.echo(f"{total} {done}{more}")


def chosen(ids: tuple[str, ...], filter_: dict[str, Any], *, everything: bool) -> dict[str, Any]:
    """The filter that the options mean; empty when ids alone were named.

    Raises:
        Stop: nothing was named, or too much.

    """
    given = {name: value for name, value in filter_.items() if value is not None}
    if everything and not given:
        given = {"all": True}
    elif everything:
        raise Stop(Exit.WRONG_USE, "--all means everything: leave the other filters out.")
    if bool(ids) == bool(given):
        raise Stop(Exit.WRONG_USE, "name either ids, or a filter, or --all.")
    return given
