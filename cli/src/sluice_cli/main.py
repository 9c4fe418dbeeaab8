"""The `sluice` command."""

from __future__ import annotations

import importlib
import sys

import click

from sluice_cli.exits import Exit, Stop
from sluice_core.domain.errors import ConfigError, StoreAwayError

#: Command -> where it is. Imported when used: the database's libraries alone take half a second.
_COMMANDS = {
    "up": "local:up",
    "get": "get:get",
    "jobs": "jobs:jobs",
    "show": "jobs:show",
    "watch": "jobs:watch",
    "cancel": "jobs:cancel",
    "retry": "jobs:retry",
    "delete": "jobs:delete",
    "explain": "explain:explain",
    "queues": "operate:queues",
    "workers": "operate:workers",
    "stats": "operate:stats",
    "audit": "operate:audit",
    "dead-letters": "letters:dead_letters",
    "schedules": "schedules:schedules",
    "sites": "sites:sites",
    "doctor": "doctor:doctor",
    "simulate": "simulate:simulate",
    "keys": "admin:keys",
    "migrate": "admin:migrate",
    "config": "local:config",
    "sample-site": "local:sample_site",
}


class _Lazy(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"sluice_cli.commands.{module}"), attribute)
        assert isinstance(found, click.Command)  # noqa: S101  # for the type checker
        return found


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice-cli", prog_name="sluice")
def cli() -> None:
    """Give it a link, get a finished media file.

    Exit codes: 0 done, 1 the job failed, 2 wrong use, 3 the server is unreachable,
    130 ended by Ctrl-C.
    """


def main() -> None:
    """Entry point: every known trouble is one sentence and an exit code."""
    try:
        code = cli.main(prog_name="sluice", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except Stop as stop:
        if str(stop):
            click.echo(f"sluice: {stop}", err=True)
        sys.exit(stop.code)
    except (ConfigError, StoreAwayError) as exc:
        words = exc.sentence if isinstance(exc, StoreAwayError) else exc
        click.echo(f"sluice: {words}", err=True)
        sys.exit(Exit.WRONG_USE)
    except click.ClickException as exc:
        exc.show()
        sys.exit(Exit.WRONG_USE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(Exit.INTERRUPTED)
