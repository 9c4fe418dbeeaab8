"""`sluice sites`: cookies and passwords, each for one site."""

from __future__ import annotations

import sys
from typing import Any, TextIO
from urllib.parse import quote

import click

from sluice_cli.commands.many import one_by_one
from sluice_cli.commands.server import ListingGroup, connect, json_option, server_options
from sluice_cli.exits import Exit, Stop
from sluice_cli.table import print_json, print_rows
from sluice_core.domain.sites import MAX_FILE, MAX_PASSWORD


@click.group(cls=ListingGroup)
def sites() -> None:
    """Cookies and passwords that sites are shown; kept encrypted, and never given back."""


@sites.command("list")
@json_option
@server_options
def list_(server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show for which sites something is kept."""
    with connect(server, api_key) as api:
        found = api.get("v1/sites")["sites"]
    if as_json:
        for site in found:
            print_json(site)
        return
    rows = (
        [
            site["host"],
            site["cookies"] or "-",
            site["expires_at"],
            "yes" if site["password"] else "-",
            site["updated_at"],
            site["used_at"],
            "" if site["readable"] else "sealed with another key",
        ]
        for site in found
    )
    print_rows(rows, head=("HOST", "COOKIES", "EXPIRES", "PASSWORD", "CHANGED", "USED", ""))


@sites.command()
@click.argument("host")
@click.option(
    *("--cookies", "cookie_file"),
    type=click.File(encoding="utf-8", errors="replace"),
    help="A Netscape cookie file, as browsers' extensions write it; - for standard input.",
)
@click.option("--username", help="For HTTP Basic; its password is asked for.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@json_option
@server_options
def add(
    *,
    host: str,
    cookie_file: TextIO | None,
    username: str | None,
    password_stdin: bool,
    as_json: bool,
    server: str | None,
    api_key: str | None,
) -> None:
    """Keep what a site is shown, in place of what was kept for it.

    Of a cookie file that holds those of all sites only the cookies of HOST and the hosts below it
    are kept. Neither cookies nor passwords can be given as an argument, where others see them.
    """
    if cookie_file is None and username is None:
        raise Stop(Exit.WRONG_USE, "give --cookies, --username, or both.")
    if password_stdin and (username is None or (cookie_file and cookie_file.name == "<stdin>")):
        raise Stop(
            Exit.WRONG_USE, "--password-stdin goes with --username, and not with cookies on -."
        )
    body: dict[str, Any] = {"host": host}
    if cookie_file is not None:
        # One more than is taken, so that the server says what is wrong.
        body["cookies"] = cookie_file.read(MAX_FILE + 1)
    if username is not None:
        body |= {"username": username, "password": _password(from_stdin=password_stdin)}
    with connect(server, api_key) as api:
        made = api.post("v1/sites", body)
    if as_json:
        print_json(made)
        return
    click.echo(f"{made['host']}: {_kinds(made)}")


@sites.command()
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@server_options
def remove(hosts: tuple[str, ...], server: str | None, api_key: str | None) -> None:
    """Forget sites; holds from the next page or file that is fetched."""
    with connect(server, api_key) as api:

        def act(host: str) -> str:
            api.remove(f"v1/sites/{quote(host, safe='')}")
            return "removed"

        one_by_one(hosts, act)


@sites.command()
@server_options
def reseal(server: str | None, api_key: str | None) -> None:
    """Seal all with the first key of SLUICE_SITE_SECRETS_KEY, so that older ones can go."""
    with connect(server, api_key) as api:
        told = api.post("v1/sites:reseal")
    click.echo(f"{told['done']} sealed with the first key")
    for host in told["unreadable"]:
        click.echo(f"{host} can't be opened with any key: add it anew", err=True)
    if told["unreadable"]:
        raise Stop(Exit.JOB_FAILED)


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline(MAX_PASSWORD + 2).removesuffix("\n")
    typed: str = click.prompt("Password", hide_input=True, err=True)
    return typed


def _kinds(made: dict[str, Any]) -> str:
    kinds = []
    if made["cookies"]:
        left_out = [f"{made[why]} {why}" for why in ("foreign", "expired") if made[why]]
        words = f"{made['cookies']} cookie{'s' if made['cookies'] != 1 else ''}"
        kinds.append(f"{words} ({', '.join(left_out)} left out)" if left_out else words)
    if made["password"]:
        kinds.append("a password")
    return " and ".join(kinds)
