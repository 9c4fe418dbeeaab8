"""`sluice doctor`: shows on a running server that work is done, retried, delayed and counted."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from sluice_cli.client.api import Api
from sluice_cli.commands.server import local_url, mapped, server_options
from sluice_cli.doctor.checks import examine
from sluice_cli.doctor.patients import Patients
from sluice_cli.exits import Exit, Stop
from sluice_cli.local import companion, folder
from sluice_core.adapters import settings as settings_module

#: Sample that must succeed, and what makes its site refuse another one for ever.
GOOD, FAULT = "small", "/mp4/small.mp4?fail=500"
#: A name that never resolves (RFC 2606): a failing link for any server.
DEAD_LINK = "http://doctor.invalid/sluice"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """The server, and links for it."""

    url: str
    good: str
    bad: str
    #: `address:port` of the sample site, when that is used.
    site: str | None = None


@click.command()
@click.option("--good", help="A link that this server can fetch; default: the sample site.")
@click.option("--bad", help="A link that fails for a while; default: one that always does.")
@click.option(
    *("--site-port", "port"),
    type=click.IntRange(0, 65535),
    help="Port of the sample site; default: one that SLUICE_EGRESS_ALLOW names.",
)
@click.option("--timeout", type=click.FloatRange(10), default=120.0, show_default=True)
@server_options
def doctor(
    *,
    good: str | None,
    bad: str | None,
    port: int | None,
    timeout: float,
    server: str | None,
    api_key: str | None,
) -> int:
    """Examine a server: a good job, a failing one and a delayed one, and what is counted of them.

    Uses the server at --url, or the instance that runs on the data folder, or starts one for as
    long as it takes. Prints a line for each finding and removes what it submitted. Exit code 0
    when all is well, 1 when something is not. The key needs the scope `operate`.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        place = _place(stack, server or local_url(), good, bad, port)
        with mapped(place.url), Api(place.url, key=api_key) as api:
            patients = Patients(api, good=place.good, bad=place.bad, site=place.site)
            well = True
            for finding in examine(api, patients, timeout=timeout):
                click.echo(str(finding))
                well = well and finding.ok
    return Exit.DONE if well else Exit.JOB_FAILED


def _place(
    stack: ExitStack, server: str | None, good: str | None, bad: str | None, port: int | None
) -> Place:
    """The server to examine, started if need be, with the sample site beside it if need be."""
    if good is not None:
        url = server or stack.enter_context(_own({**os.environ}))
        return Place(url, good, bad or DEAD_LINK)
    if server is not None and urlsplit(server).hostname not in (_LOOPBACK, "localhost"):
        raise Stop(
            Exit.WRONG_USE, "give --good LINK: the sample site is for servers on this machine."
        )
    chosen = port if port is not None else (_allowed_port() if server else 0)
    site = stack.enter_context(companion.sample_site(os.environ, port=chosen))
    link = next(sample["url"] for sample in site.samples if sample["kind"] == GOOD)
    url = server or stack.enter_context(_own({**os.environ, "SLUICE_EGRESS_ALLOW": site.address}))
    return Place(url, link, bad or site.base.rstrip("/") + FAULT, site=site.address)


@contextmanager
def _own(environ: dict[str, str]) -> Iterator[str]:
    data = folder.prepare(settings_module.load().store.data_dir)
    click.echo("Starting Sluice …", err=True)
    with companion.own_system(environ, data) as url:
        yield url


def _allowed_port() -> int:
    """A free port of this machine that the environment lets media work reach; 0 without one."""
    for entry in settings_module.load().egress.allow:
        address, _, port = entry.partition(":")
        if address == _LOOPBACK and port.isdigit() and _is_free(int(port)):
            return int(port)
    return 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True
