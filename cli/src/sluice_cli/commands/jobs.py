"""Commands on jobs of a server."""

from __future__ import annotations

import sys

import click

from sluice_cli.client.follow import Follower
from sluice_cli.commands.many import chosen, one_by_one, work_off
from sluice_cli.commands.server import connect, json_option, server_options
from sluice_cli.exits import Exit
from sluice_cli.show import display
from sluice_cli.table import print_json, print_rows
from sluice_cli.words import clean, failure_of, figures_of, name_of
from sluice_core.domain.states import ACTIVE


@click.command()
@click.option("--status", help="Only jobs in this state, e.g. FAILED.")
@click.option("--q", "query", help="Start of a title, link or id, or words of the title.")
@click.option("--parent", help="Only the entries of this collection.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
@server_options
def jobs(
    *,
    status: str | None,
    query: str | None,
    parent: str | None,
    limit: int,
    server: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    with connect(server, api_key) as api:
        upper = status.upper() if status else None
        found = list(api.jobs(limit=limit, status=upper, q=query, parent=parent))
    if as_json:
        for job in found:
            print_json(job)
        return
    rows = ([job["id"], job["status"], name_of(job), job["step"]] for job in found)
    print_rows(rows, head=("ID", "STATUS", "TITLE", "STEP"))


@click.command()
@click.argument("job_id", metavar="ID")
@json_option
@server_options
def show(job_id: str, server: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Show one job."""
    with connect(server, api_key) as api:
        job = api.job(job_id)
    if as_json:
        print_json(job)
        return
    said = {
        **{name: job.get(name) for name in ("id", "url", "title", "status", "step", "preset")},
        **{name: job.get(name) for name in ("priority", "attempt", "queue_position", "retry_at")},
        "progress": figures_of(job) if job["status"] in ACTIVE else "",
        "error": failure_of(job) if job.get("error") else None,
        **{name: job.get(name) for name in ("created_at", "finished_at", "expires_at")},
    }
    for name, value in said.items():
        if value not in (None, ""):
            click.echo(f"{name + ':':16}{clean(str(value))}")
    for file in job["files"]:
        click.echo(f"{'file:':16}{clean(file['name'])} ({file['bytes']} bytes)")


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@server_options
def watch(job_id: str | None, server: str | None, api_key: str | None) -> int:
    """Follow one job to its end, or all that are under way now."""
    with connect(server, api_key) as api:
        ids = [job_id] if job_id else [job["id"] for job in api.jobs(status=sorted(ACTIVE))]
        if not ids:
            click.echo("nothing is under way", err=True)
            return Exit.DONE
        follower = Follower(api, ids)
        with display(sys.stderr) as shown:
            for job in follower.updates():
                shown.update(job)
    failed = [job for job in follower.jobs.values() if job["status"] != "SUCCESS"]
    for job in failed:
        click.echo(f"sluice: {name_of(job)}: {failure_of(job)}", err=True)
    return Exit.JOB_FAILED if failed else Exit.DONE


def _action(name: str, words: str, done: str) -> click.Command:
    """`cancel` and `retry`, of ids or of all that fit, which differ in their words alone."""

    @click.command(name, help=words)
    @click.argument("job_ids", metavar="[ID]...", nargs=-1)
    @click.option("--status", help="All in this state, e.g. FAILED.")
    @click.option(
        "--q",
        "query",
        help="All whose title, link or id begins so, or whose title has these words.",
    )
    @click.option("--preset", help="All with this preset.")
    @click.option("--error", "error_code", help="All that failed with this code.")
    @click.option("--all", "everything", is_flag=True, help="Every job.")
    @server_options
    def run(
        *,
        job_ids: tuple[str, ...],
        status: str | None,
        query: str | None,
        preset: str | None,
        error_code: str | None,
        everything: bool,
        server: str | None,
        api_key: str | None,
    ) -> None:
        asked = {
            "status": [status.upper()] if status else None,
            "q": query,
            "preset": preset,
            "error_code": error_code,
        }
        filter_ = chosen(job_ids, asked, everything=everything)
        with connect(server, api_key) as api:

            def act(job_id: str) -> str:
                api.act(job_id, name)
                return done

            if filter_:
                work_off(api, f"v1/jobs:{name}", filter_, done=done)
            one_by_one(job_ids, act)

    return run


cancel = _action("cancel", "Cancel jobs, their running work included.", "canceled")
retry = _action("retry", "Start ended jobs again at the stage that failed.", "started again")


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@server_options
def delete(job_ids: tuple[str, ...], server: str | None, api_key: str | None) -> None:
    """Delete jobs and their files."""
    with connect(server, api_key) as api:

        def act(job_id: str) -> str:
            api.delete(job_id)
            return "deleted"

        one_by_one(job_ids, act)
