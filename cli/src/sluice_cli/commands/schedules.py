"""`sluice schedules`: what happens again and again, subscriptions included."""

from __future__ import annotations

from typing import Any

import click

from sluice_cli.client.api import Api, RefusedError
from sluice_cli.commands.many import one_by_one
from sluice_cli.commands.server import ListingGroup, connect, json_option, server_options
from sluice_cli.exits import Exit, Stop
from sluice_cli.table import print_json, print_rows


@click.group(cls=ListingGroup)
def schedules() -> None:
    """Jobs, subscriptions and built-in tasks that come again and again."""


@schedules.command("list")
@json_option
@server_options
def list_(server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """List them all with their next firing."""
    with connect(server, api_key) as api:
        found = _all(api)
    if as_json:
        for schedule in found:
            print_json(schedule)
        return
    rows = ([s["id"], s["name"], s["kind"], _when(s), _next(s), _last(s)] for s in found)
    print_rows(rows, head=("ID", "NAME", "KIND", "WHEN", "NEXT", "LAST"))


@schedules.command()
@click.argument("word", metavar="NAME|ID")
@json_option
@server_options
def show(word: str, server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show the next three firings of one, in its zone and in UTC, and what came of the last."""
    with connect(server, api_key) as api:
        path = _path(api, word)
        schedule = api.get(path)
        firings = api.get(f"v1/schedules/{schedule['id']}/firings")["firings"]
    if as_json:
        print_json({**schedule, "firings": firings})
        return
    click.echo(f"{schedule['name']} ({schedule['kind']}), {_when(schedule)}")
    for moment in schedule["next"]:
        click.echo(f"next  {moment['local']}  {moment['utc']}")
    for firing in firings[:10]:
        words = firing["message"] or ""
        click.echo(f"{firing['outcome'] or 'runs':8} {firing['planned_at']}  {words}")


@schedules.command()
@click.argument("name")
@click.argument("url", metavar="LINK")
@click.option("--cron", help="Minute, hour, day of month, month, day of week.")
@click.option("--timezone", help="Zone of the cron expression, e.g. Europe/Berlin.")
@click.option("--every", type=click.FloatRange(min=1), help="Seconds, instead of cron.")
@click.option("--preset", default="best", show_default=True)
@click.option("--allow-gaps", is_flag=True, help="As of `sluice get`.")
@click.option("--subscribe", is_flag=True, help="Only what is new in the list becomes jobs.")
@click.option("--backfill", is_flag=True, help="With --subscribe: what is there now too.")
@server_options
def add(
    *,
    name: str,
    url: str,
    cron: str | None,
    timezone: str | None,
    every: float | None,
    preset: str,
    allow_gaps: bool,
    subscribe: bool,
    backfill: bool,
    server: str | None,
    api_key: str | None,
) -> None:
    """Submit a link again and again, or subscribe to a channel, playlist or feed."""
    if backfill and not subscribe:
        raise Stop(Exit.WRONG_USE, "--backfill goes with --subscribe alone.")
    when = {"cron": cron, "timezone": timezone, "every_seconds": every}
    body: dict[str, Any] = {k: v for k, v in when.items() if v is not None}
    body["name"] = name
    job: dict[str, Any] = {"url": url, "preset": preset}
    job |= {"allow_gaps": True} if allow_gaps else {}
    body |= {**job, "backfill": backfill} if subscribe else {"job": job}
    with connect(server, api_key) as api:
        made = api.post(f"v1/{'subscriptions' if subscribe else 'schedules'}", body)
    click.echo(f"{made['id']} added, next {_next(made)}")


@schedules.command()
@click.argument("word", metavar="NAME|ID")
@click.option("--cron", help="Minute, hour, day of month, month, day of week.")
@click.option("--timezone", help="Zone of the cron expression.")
@click.option("--every", type=click.FloatRange(min=1), help="Seconds, instead of cron.")
@click.option("--enable/--disable", "enabled", default=None, help="Let it rest, or not.")
@server_options
def change(
    *,
    word: str,
    cron: str | None,
    timezone: str | None,
    every: float | None,
    enabled: bool | None,
    server: str | None,
    api_key: str | None,
) -> None:
    """Change when one fires; counts from now on."""
    said = {"cron": cron, "timezone": timezone, "every_seconds": every, "enabled": enabled}
    with connect(server, api_key) as api:
        body = {k: v for k, v in said.items() if v is not None}
        changed = api.patch(_path(api, word), body)
    click.echo(f"{word} changed, next {_next(changed)}")


@schedules.command()
@click.argument("words", metavar="NAME|ID...", nargs=-1, required=True)
@server_options
def run(words: tuple[str, ...], server: str | None, api_key: str | None) -> None:
    """Fire now."""
    with connect(server, api_key) as api:

        def act(word: str) -> str:
            # It takes subscriptions too.
            api.post(f"v1/schedules/{_find(api, word)['id']}/run")
            return "fires"

        one_by_one(words, act)


@schedules.command()
@click.argument("words", metavar="NAME|ID...", nargs=-1, required=True)
@server_options
def remove(words: tuple[str, ...], server: str | None, api_key: str | None) -> None:
    """Delete schedules or end subscriptions; their jobs stay."""
    with connect(server, api_key) as api:

        def act(word: str) -> str:
            api.remove(_path(api, word))
            return "removed"

        one_by_one(words, act)


def _all(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("v1/schedules")["schedules"]
    return found + list(api.get("v1/subscriptions")["subscriptions"])


def _path(api: Api, word: str) -> str:
    found = _find(api, word)
    of = "subscriptions" if found["kind"] == "subscription" else "schedules"
    return f"v1/{of}/{found['id']}"


def _find(api: Api, word: str) -> dict[str, Any]:
    """The one that people mean, by its name, which no other has, or by its id.

    Raises:
        RefusedError: there is none.

    """
    for schedule in _all(api):
        if word in (schedule["name"], schedule["id"]):
            return schedule
    raise RefusedError(
        "there is no schedule or subscription of this name or id; `sluice schedules` lists them.",
        code="not_found",
        status=404,
    )


def _when(schedule: dict[str, Any]) -> str:
    if schedule["cron"] is not None:
        return f"{schedule['cron']} {schedule['timezone']}"
    return f"every {schedule['every_seconds']:g} s"


def _next(schedule: dict[str, Any]) -> str:
    moments = schedule["next"]
    return str(moments[0]["local"]) if moments else "-"


def _last(schedule: dict[str, Any]) -> str:
    last = schedule["last"]
    return "-" if last is None else str(last["outcome"] or "runs")
