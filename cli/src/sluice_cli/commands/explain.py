"""`sluice explain`: where a job is and what it waits for, in words."""

from __future__ import annotations

from urllib.parse import quote

import click

from sluice_cli.commands.server import connect, json_option, server_options
from sluice_cli.table import print_json
from sluice_cli.words import clean


@click.command()
@click.argument("job_id", metavar="ID")
@json_option
@server_options
def explain(job_id: str, server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Say where a job is and what it waits for."""
    with connect(server, api_key) as api:
        found = api.get(f"v1/jobs/{quote(job_id, safe='')}/explain")
    if as_json:
        print_json(found)
        return
    for sentence in found["sentences"]:
        click.echo(clean(sentence))
