"""`sluice get`: links in, finished files out."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from sluice_cli.client.api import Api, RefusedError, UnreachableError
from sluice_cli.client.follow import Follower
from sluice_cli.client.save import check_folder, save, save_together
from sluice_cli.commands.server import mapped, server_options
from sluice_cli.exits import Exit, Stop
from sluice_cli.local import companion, folder
from sluice_cli.show import display
from sluice_cli.table import print_json
from sluice_cli.words import clean, failure_of, name_of
from sluice_core.adapters import settings as settings_module
from sluice_core.domain.job import PLAYLIST

#: The sample that a call without a link fetches: H.264 + AAC in MP4.
SAMPLE = "plain"
LANES = ("critical", "high", "default", "low", "bulk")


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for."""

    links: tuple[str, ...]
    #: Fields of each request but its link; None and empty ones are left to the server.
    fields: Mapping[str, Any]
    out: Path
    as_json: bool
    wait: bool

    def body(self, link: str) -> dict[str, Any]:
        return {"url": link, **{name: value for name, value in self.fields.items() if value}}


@click.command()
@click.argument("links", nargs=-1, metavar="[LINK]...")
@click.option("--preset", help="What to make of it, e.g. 1080p or audio-m4a.")
@click.option("--priority", type=click.Choice(LANES), help="Lane of the queues.")
@click.option("--allow-gaps", is_flag=True, help="Keep media of which parts are missing for good.")
@click.option(
    *("--subtitles", "languages"),
    multiple=True,
    metavar="LANGUAGE",
    help="Keep these too, e.g. en, or all; can be given several times.",
)
@click.option(
    "--playlist",
    type=click.Choice(("auto", "single", "all")),
    help="Of a link that holds several media: what suits, the first, or all.",
)
@click.option("--items", help="Entries to take of a list, e.g. 1-3,7.")
@click.option(
    *("--out", "out"),
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("downloads"),
    show_default=True,
    help="Folder for the finished files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each finished job as JSON.")
@click.option("--no-wait", is_flag=True, help="Print the job's id and leave it to the server.")
@server_options
def get(
    *,
    links: tuple[str, ...],
    preset: str | None,
    priority: str | None,
    languages: tuple[str, ...],
    playlist: str | None,
    items: str | None,
    allow_gaps: bool,
    out: Path,
    server: str | None,
    api_key: str | None,
    as_json: bool,
    no_wait: bool,
) -> int:
    """Fetch links and save the finished files.

    Uses the server at --url, or the instance that runs on the data folder, or starts one for as
    long as it takes. Without a LINK it fetches one file from the bundled sample site.
    """
    fields = {
        "preset": preset,
        "priority": priority,
        "subtitles": languages,
        "playlist": playlist,
        "items": items,
        "allow_gaps": allow_gaps,
    }
    order = Order(links, fields, out, as_json, wait=not no_wait)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if order.wait:
        check_folder(out)
    with ExitStack() as stack:
        url, order = _place(stack, order, server)
        with mapped(url), Api(url, key=api_key) as api:
            return _run(api, order)


def _place(stack: ExitStack, order: Order, server: str | None) -> tuple[str, Order]:
    """The server to use, started if need be, and the order with its links known."""
    if not order.links:
        if server is not None:
            raise Stop(Exit.WRONG_USE, "give a LINK: the sample site is not for another server.")
        return _sample(stack, order)
    if server is not None:
        return server, order
    data = folder.prepare(settings_module.load().store.data_dir)
    while True:
        running = companion.lasting_url(data, tell=_tell)
        if running is not None:
            return running, order
        try:
            return _own(stack, order, dict(os.environ), data), order
        except Stop:
            # Somebody may have been faster; then it is their turn first.
            if not folder.is_locked(data):
                raise


def _sample(stack: ExitStack, order: Order) -> tuple[str, Order]:
    """A system that may reach the sample site; beside a running one, in a folder of its own."""
    data = folder.prepare(settings_module.load().store.data_dir)
    if folder.is_locked(data):
        data = folder.prepare(data / "sample")
    site = stack.enter_context(companion.sample_site(os.environ))
    link = next(sample["url"] for sample in site.samples if sample["kind"] == SAMPLE)
    # This address and port alone: the guard stays up for everything else.
    environ = {**os.environ, "SLUICE_EGRESS_ALLOW": site.address}
    return _own(stack, order, environ, data), replace(order, links=(link,))


def _own(stack: ExitStack, order: Order, environ: dict[str, str], data: Path) -> str:
    if not order.wait:
        raise Stop(Exit.WRONG_USE, "--no-wait needs a server that goes on: start `sluice up`.")
    _tell("Starting Sluice …")
    return stack.enter_context(companion.own_system(environ, data))


def _tell(words: str) -> None:
    click.echo(words, err=True)


def _run(api: Api, order: Order) -> int:
    ours: list[str] = []
    with _canceling(api, ours):
        job_ids, worst = _submit(api, order, ours)
        if not order.wait:
            for job_id in job_ids:
                click.echo(job_id)
            return worst
        return max([worst, *(_finish(api, job, order) for job in _follow(api, job_ids))])


def _submit(api: Api, order: Order, ours: list[str]) -> tuple[list[str], Exit]:
    """Hand in all links; one that is refused keeps no other from its way."""
    job_ids, worst = [], Exit.DONE
    for link in dict.fromkeys(order.links):
        try:
            job, is_new = api.submit(order.body(link), idempotency_key=str(uuid.uuid4()))
        except RefusedError as exc:
            click.echo(f"sluice: {clean(link)}: {exc.code}: {exc}", err=True)
            worst = Exit.WRONG_USE
            continue
        job_ids.append(job["id"])
        if is_new:
            ours.append(job["id"])
    return job_ids, worst


@contextmanager
def _canceling(api: Api, job_ids: list[str]) -> Iterator[None]:
    """What is not waited for any more is not worked on, unless somebody else asked for it first."""
    try:
        yield
    except KeyboardInterrupt:
        for job_id in job_ids:
            try:
                api.act(job_id, "cancel")
            except (RefusedError, UnreachableError):
                # It has ended by itself, or there is nobody to tell.
                continue
        raise


def _follow(api: Api, job_ids: list[str]) -> list[dict[str, Any]]:
    follower = Follower(api, job_ids)
    with display(sys.stderr) as shown:
        for job in follower.updates():
            shown.update(job)
    # A last look: files come with the whole job only.
    return [api.job(job_id) for job_id in job_ids]


def _finish(api: Api, job: dict[str, Any], order: Order) -> Exit:
    """Save what a job made, children included; say what it did not make."""
    is_collection = job["children"]["total"] > 0
    # A list begins with the newest, which is the last entry.
    members = [*api.jobs(parent=job["id"])][::-1] if is_collection else [job]
    saved = {member["id"]: _save_all(api, member, order.out) for member in members}
    if order.as_json:
        paths = [path for member in members for path in saved[member["id"]]]
        print_json({**job, "saved": paths})
    else:
        for path in (path for member in members for path in saved[member["id"]]):
            click.echo(path)
    for member in members:
        if member["status"] != "SUCCESS":
            click.echo(f"sluice: {name_of(member)}: {failure_of(member)}", err=True)
    if job["status"] != "SUCCESS" and is_collection:
        click.echo(f"sluice: {name_of(job)}: {failure_of(job)}", err=True)
    return Exit.DONE if job["status"] == "SUCCESS" else Exit.JOB_FAILED


def _save_all(api: Api, job: dict[str, Any], out: Path) -> list[str]:
    # A list of jobs need not carry their files.
    files = job.get("files") or (api.job(job["id"])["files"] if _has_files(job) else [])
    if any(file.get("kind") == PLAYLIST for file in files):
        # They name each other: under other names they would be of no use.
        return [str(path) for path in save_together(api, files, out, name_of(job))]
    return [str(save(api, file, out)) for file in files]


def _has_files(job: dict[str, Any]) -> bool:
    return job["status"] in ("SUCCESS", "PARTIAL")
