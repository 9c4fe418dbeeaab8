"""Which server a command talks to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from sluice_cli.client.api import Api, RefusedError, UnreachableError
from sluice_cli.exits import Exit, Stop
from sluice_cli.local import folder
from sluice_core.adapters import settings as settings_module

_F = TypeVar("_F", bound=Callable[..., Any])


def server_options(function: _F) -> _F:
    """`--url` and `--api-key`, or their variables."""
    key = click.option("--api-key", envvar="SLUICE_API_KEY", help="Key of that server.")
    url = click.option("--url", "server", envvar="SLUICE_URL", help="Address of a server.")
    return url(key(function))


def json_option(function: _F) -> _F:
    """`--json`, for programs."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, one document a line."
    )
    return option(function)


class ListingGroup(click.Group):
    """A group that lists when no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["list"])


def local_url() -> str | None:
    """The instance on this machine's data folder, if one runs."""
    settings = settings_module.load()
    instance = folder.running_on(settings.store.data_dir.expanduser().absolute())
    return instance.url if instance else None


@contextmanager
def connect(server: str | None, api_key: str | None) -> Iterator[Api]:
    """A client, and its troubles as exit codes.

    Raises:
        Stop: 2 when the server refuses, 3 when it can't be reached.

    """
    url = server or local_url()
    if url is None:
        raise Stop(
            Exit.UNREACHABLE,
            "no Sluice runs on this data folder: start one with `sluice up`, or set SLUICE_URL.",
        )
    with mapped(url), Api(url, key=api_key) as api:
        yield api


@contextmanager
def mapped(url: str) -> Iterator[None]:
    """The client's errors as exit codes with a sentence."""
    try:
        yield
    except UnreachableError as exc:
        raise Stop(Exit.UNREACHABLE, f"{url} can't be reached: {exc}") from exc
    except RefusedError as exc:
        raise Stop(Exit.WRONG_USE, f"{exc.code}: {exc}") from exc
