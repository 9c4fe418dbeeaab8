"""Commands about this machine's own system."""

from __future__ import annotations

import os
import signal
import sys

import click

from sluice_cli.exits import Exit, Stop
from sluice_core.adapters import settings as settings_module


@click.command()
@click.option("--host", help="Address to listen on, instead of SLUICE_HTTP_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@click.option("--temporary", is_flag=True, hidden=True)
def up(host: str | None, port: int | None, *, temporary: bool) -> None:
    """Run the whole system in the foreground until Ctrl-C.

    Redis, database and storage are embedded unless SLUICE_REDIS_URL, SLUICE_DATABASE_URL or
    SLUICE_STORAGE_URL name others.
    """
    # The database's libraries are of use to this command only, and slow to import.
    from sluice_cli.local.preflight import prepare  # noqa: PLC0415
    from sluice_cli.local.start import become_supervisor  # noqa: PLC0415

    if not temporary and sys.stderr.isatty():
        # Somebody waits: until all is ready nothing else is said.
        click.echo("Starting Sluice …", err=True)
    become_supervisor(prepare(os.environ, host=host, port=port, temporary=temporary))


@click.command("sample-site")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 takes a free one.")
def sample_site(port: int) -> None:
    """Run the bundled sample site until Ctrl-C, and print its links."""
    from sluice_cli.local import companion  # noqa: PLC0415  # as above

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with companion.sample_site(os.environ, port=port) as site:
            for sample in site.samples:
                click.echo(f"{sample['kind']:16}{sample['url']}")
            click.echo(f"\nLet Sluice reach it: SLUICE_EGRESS_ALLOW={site.address} make up")
            ended = site.process.wait()
    except KeyboardInterrupt:
        return
    raise Stop(Exit.UNREACHABLE, f"the sample site ended by itself, with {ended}.")


@click.command()
def config() -> None:
    """Print the effective settings, secrets masked."""
    for name, value in settings_module.load().effective().items():
        click.echo(f"{name}={value}")
