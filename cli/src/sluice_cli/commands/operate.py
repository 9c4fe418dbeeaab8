"""Commands for operators: queues, workers, figures, and the trail of what was done."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from sluice_cli.commands.many import one_by_one
from sluice_cli.commands.server import ListingGroup, connect, json_option, server_options
from sluice_cli.table import print_json, print_rows
from sluice_cli.words import clean, duration, size


@click.group(cls=ListingGroup)
def queues() -> None:
    """What waits and runs in each queue; pausing and resuming queues."""


@queues.command("list")
@json_option
@server_options
def list_queues(server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show what waits and runs in each queue."""
    with connect(server, api_key) as api:
        found = api.get("v1/queues")["queues"]
    if as_json:
        for queue in found:
            print_json(queue)
        return
    counts = ("waiting", "in_flight", "due", "delayed", "dead")
    rows = (
        [
            queue["name"],
            *(queue[name] for name in counts),
            _age(queue["oldest_age_seconds"]),
            f"{queue['in_per_minute']}/{queue['out_per_minute']}",
            f"paused by {queue['paused_by']}" if queue["paused"] else "",
        ]
        for queue in found
    )
    head = (*(name.upper().replace("_", " ") for name in counts), "OLDEST", "IN/OUT PER MIN", "")
    print_rows(rows, head=("QUEUE", *head))


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _switch(name: str, words: str, done: str, already: str) -> click.Command:
    """`pause NAME…` and `resume NAME…`, which differ in their words alone."""

    @click.command(name, help=words)
    @click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
    @server_options
    def run(names: tuple[str, ...], server: str | None, api_key: str | None) -> None:
        with connect(server, api_key) as api:

            def act(queue: str) -> str:
                answer = api.post(f"v1/queues/{quote(queue, safe='')}/{name}")
                return done if answer["changed"] else already

            one_by_one(names, act)

    return run


queues.add_command(
    _switch(
        "pause",
        "Hand out nothing of queues until they are resumed; what runs goes on.",
        "paused",
        "is paused already",
    )
)
queues.add_command(
    _switch("resume", "Hand out again what waits in queues.", "resumed", "is not paused")
)


@click.group(cls=ListingGroup)
def workers() -> None:
    """Who works at what; draining a worker."""


@workers.command("list")
@json_option
@server_options
def list_workers(server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show the workers and what each runs."""
    with connect(server, api_key) as api:
        found = api.get("v1/workers")["workers"]
    if as_json:
        for worker in found:
            print_json(worker)
        return
    rows: list[list[Any]] = []
    for worker in found:
        memory = worker["memory_bytes"]
        told = [
            worker["id"],
            worker["stage"],
            _age(worker["alive_seconds"]),
            size(memory) if memory else "-",
            _mood(worker),
        ]
        runs = [f"{run['job_id']}: {run['step']}" for run in worker["runs"]] or [""]
        rows += [[*told, runs[0]], *(["", "", "", "", "", run] for run in runs[1:])]
    print_rows(rows, head=("ID", "STAGE", "ALIVE", "MEMORY", "STATE", "RUNS"))


def _mood(worker: dict[str, Any]) -> str:
    if worker["draining"]:
        return "draining"
    if worker["standby"]:
        return "standby"
    return "busy" if worker["jobs"] else "idle"


@workers.command()
@click.argument("worker_ids", metavar="ID...", nargs=-1, required=True)
@server_options
def drain(worker_ids: tuple[str, ...], server: str | None, api_key: str | None) -> None:
    """Let workers finish what they run, take nothing more, and end."""
    with connect(server, api_key) as api:

        def act(worker_id: str) -> str:
            answer = api.post(f"v1/workers/{quote(worker_id, safe='')}/drain")
            return "drains" if answer["changed"] else "drains already"

        one_by_one(worker_ids, act)


@click.command()
@json_option
@server_options
def stats(server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show the system in figures: jobs, lag, who leads, versions, settings."""
    with connect(server, api_key) as api:
        found = api.get("v1/stats")
    if as_json:
        print_json(found)
        return
    if found["waiting"] is not None:
        # Queues are many, and mostly empty; `sluice queues` has them all.
        waiting = {queue: count for queue, count in found["waiting"].items() if count}
        found["waiting"] = waiting or "nothing"
    for name, value in found.items():
        if name != "settings":
            click.echo(f"{name.replace('_', ' ') + ':':24}{clean(_told(value))}")
    for name, value in sorted((found["settings"] or {}).items()):
        click.echo(f"{name}={clean(value)}")


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_told(of)}" for key, of in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


@click.command()
@click.option("--action", help="Only these, e.g. queue.pause, or queue for all on queues.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
@server_options
def audit(
    *,
    action: str | None,
    limit: int,
    server: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Show what operators did, newest first."""
    with connect(server, api_key) as api:
        entries = list(api.listed("v1/audit", "entries", limit=limit, action=action))
    if as_json:
        for entry in entries:
            print_json(entry)
        return
    rows = (
        [x["at"], x["actor"], x["action"], x["target"] or "", _told(x["detail"] or "")]
        for x in entries
    )
    print_rows(rows, head=("WHEN", "WHO", "WHAT", "TO", "MORE"))
