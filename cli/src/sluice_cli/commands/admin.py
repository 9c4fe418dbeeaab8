"""Commands that work on the database itself, with or without a running system."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import sqlalchemy as sa

from sluice_cli.exits import Exit, Stop
from sluice_cli.local import folder
from sluice_cli.table import print_rows
from sluice_core.adapters import settings as settings_module
from sluice_core.adapters.db import access, audit
from sluice_core.adapters.db import migrate as migrations
from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.engine import open_engine, read, write

#: Whoever may write the database itself.
_HERE = audit.Actor("command line")


@click.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    with _engine():
        click.echo("The database is up to date.")


@click.group()
def keys() -> None:
    """API keys: needed by clients unless the API is bound to loopback."""


@keys.command()
@click.argument("name")
@click.option(
    *("--scope", "scopes"),
    multiple=True,
    type=click.Choice([scope.value for scope in access.Scope]),
    default=(access.Scope.SUBMIT.value, access.Scope.READ.value),
    show_default=True,
    help="What it may do; can be given several times.",
)
@click.option(
    *("--requests-per-minute",),
    type=click.IntRange(0),
    help="Its own limit; 0 is none. Else SLUICE_KEY_REQUESTS_PER_MINUTE.",
)
@click.option(
    *("--max-active-jobs",),
    type=click.IntRange(0),
    help="Jobs that it may have under way; 0 is no limit. Else SLUICE_KEY_MAX_ACTIVE_JOBS.",
)
def create(
    name: str,
    scopes: tuple[str, ...],
    requests_per_minute: int | None,
    max_active_jobs: int | None,
) -> None:
    """Create a key and print it, this once."""
    with _engine() as (engine, clock), write(engine) as connection:
        now = clock()
        text, key = access.create(
            connection,
            name=name,
            scopes=[access.Scope(scope) for scope in scopes],
            now=now,
            limits=access.KeyLimits(requests_per_minute, max_active_jobs),
        )
        detail = {"name": key.name, "scopes": sorted(key.scopes)}
        audit.note(connection, _HERE, "key.create", now=now, target=key.id, detail=detail)
    click.echo(text)


@keys.command("list")
def list_() -> None:
    """List keys; their text can't be shown again."""
    with _engine() as (engine, _), read(engine) as connection:
        found = access.list_keys(connection)
    rows = (
        [key.id, key.name, " ".join(sorted(key.scopes)), _day(key.created_at), _day(key.revoked_at)]
        for key in found
    )
    print_rows(rows, head=("ID", "NAME", "SCOPES", "CREATED", "REVOKED"))


@keys.command()
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """Close a key for good."""
    with _engine() as (engine, clock), write(engine) as connection:
        now = clock()
        done = access.revoke(connection, key_id, now=now)
        if done:
            audit.note(connection, _HERE, "key.revoke", now=now, target=key_id)
    if not done:
        raise Stop(Exit.WRONG_USE, f"there is no open key {key_id}.")
    click.echo(f"{key_id} revoked")


@contextmanager
def _engine() -> Iterator[tuple[sa.Engine, DatabaseClock]]:
    """The database, at its newest schema, and its clock."""
    settings = settings_module.load()
    if not settings.store.database_url:
        folder.prepare(settings.store.data_dir)
    clock = DatabaseClock()
    engine = open_engine(
        settings.store.effective_database_url, pool_size=1, durable=True, clock=clock
    )
    try:
        migrations.upgrade(engine)
        yield engine, clock
    finally:
        engine.dispose()


def _day(moment: float | None) -> str | None:
    return None if moment is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment))
