"""Commands for operators."""

from __future__ import annotations

import click

from sluice_cli.commands.server import connect, json_option, server_options
from sluice_cli.table import print_dicts, print_json


def _listing(name: str, words: str) -> click.Command:
    """A list that the server gives, as a table or as JSON."""

    @click.command(name, help=words)
    @json_option
    @server_options
    def run(server: str | None, api_key: str | None, *, as_json: bool) -> None:
        with connect(server, api_key) as api:
            items = api.get(f"v1/{name}")[name]
        if not as_json:
            print_dicts(items)
            return
        for item in items:
            print_json(item)

    return run


queues = _listing("queues", "Show what waits and runs in each queue.")
workers = _listing("workers", "Show the workers.")
