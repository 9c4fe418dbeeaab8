"""`sluice dead-letters`: what could not be done and waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import quote

import click

from sluice_cli.commands.many import chosen, one_by_one, work_off
from sluice_cli.commands.server import ListingGroup, connect, json_option, server_options
from sluice_cli.table import print_json, print_rows


@click.group("dead-letters", cls=ListingGroup)
def dead_letters() -> None:
    """Work that could not be done: list it, send it back, or drop it."""


@dead_letters.command("list")
@click.option("--queue", help="Only of this queue, or of all queues of this stage.")
@click.option("--job", "job_id", help="Only of this job.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
@server_options
def list_(
    *,
    queue: str | None,
    job_id: str | None,
    limit: int,
    server: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List dead letters, newest first."""
    with connect(server, api_key) as api:
        found = api.listed("v1/dead-letters", "dead_letters", limit=limit, queue=queue, job=job_id)
        letters = list(found)
    if as_json:
        for letter in letters:
            print_json(letter)
        return
    rows = ([x["id"], x["created_at"], x["queue"], x["job_id"], x["reason"]] for x in letters)
    print_rows(rows, head=("ID", "SINCE", "QUEUE", "JOB", "REASON"))


def _some(function: Callable[..., None]) -> Callable[..., None]:
    """Letters by id or by what they have: the command gets `letter_ids` and `filter_`."""

    @click.argument("letter_ids", metavar="[ID]...", nargs=-1)
    @click.option("--queue", help="All of this queue, or of this stage.")
    @click.option("--job", "job_id", help="All of this job.")
    @click.option("--reason", help="All whose reason begins so, e.g. an error code.")
    @click.option("--all", "everything", is_flag=True, help="Every letter.")
    @wraps(function)
    def command(
        *,
        letter_ids: tuple[str, ...],
        queue: str | None,
        job_id: str | None,
        reason: str | None,
        everything: bool,
        **rest: Any,
    ) -> None:
        asked = {"queue": queue, "job": job_id, "reason": reason}
        filter_ = chosen(letter_ids, asked, everything=everything)
        function(letter_ids=letter_ids, filter_=filter_, **rest)

    return command


@dead_letters.command()
@_some
@server_options
def requeue(
    *,
    letter_ids: tuple[str, ...],
    filter_: dict[str, Any],
    server: str | None,
    api_key: str | None,
) -> None:
    """Do again what letters stand for; they are gone then."""
    with connect(server, api_key) as api:

        def act(letter_id: str) -> str:
            answer = api.post(f"v1/dead-letters/{quote(letter_id, safe='')}/requeue")
            return f"requeued: job {answer['job_id']}"

        if filter_:
            work_off(api, "v1/dead-letters:requeue", filter_, done="requeued")
        one_by_one(letter_ids, act)


@dead_letters.command()
@_some
@server_options
def drop(
    *,
    letter_ids: tuple[str, ...],
    filter_: dict[str, Any],
    server: str | None,
    api_key: str | None,
) -> None:
    """Remove letters; their jobs stay as they are."""
    with connect(server, api_key) as api:

        def act(letter_id: str) -> str:
            api.remove(f"v1/dead-letters/{quote(letter_id, safe='')}")
            return "dropped"

        if filter_:
            work_off(api, "v1/dead-letters:drop", filter_, done="dropped")
        one_by_one(letter_ids, act)
