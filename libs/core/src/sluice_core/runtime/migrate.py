"""Brings the database to the newest schema: `python -m sluice_core.runtime.migrate`.

Safe to run twice, by several at once, and while older processes still use the database. Also writes
the first API key where the operator chose its text, so that an installation can be used at once.
"""

from __future__ import annotations

import sys

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import access, migrate
from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import NotYetError, StoreAwayError
from sluice_core.runtime import process
from sluice_core.runtime.patience import patiently
from sluice_core.runtime.process import EXIT_OK

log = structlog.get_logger(__name__)


def main() -> None:
    """Migrate and exit the process: 0 when done, 2 and one sentence when something is wrong."""
    sys.exit(process.run("migrate", run))


def run(loaded: Settings) -> int:
    """Migrate, and write the first key; returns the exit status.

    Args:
        loaded: names the database and the key.

    Raises:
        ConfigError: the settings are wrong, or the database is still away.

    """
    clock = DatabaseClock()
    engine = open_engine(loaded.store.effective_database_url, pool_size=1, clock=clock)
    try:
        patiently(lambda: _upgrade(engine), loaded.store.start_patience)
        log.info("database_migrated")
        _write_first_key(engine, loaded.http.bootstrap_key, clock)
        return EXIT_OK
    finally:
        engine.dispose()


def _upgrade(engine: sa.Engine) -> None:
    try:
        migrate.upgrade(engine)
    except StoreAwayError as exc:
        raise NotYetError(exc.sentence) from exc


def _write_first_key(engine: sa.Engine, text: str, clock: DatabaseClock) -> None:
    if not text:
        return
    with write(engine) as connection:
        made = access.ensure(
            connection, text=text, name="bootstrap", scopes=tuple(access.Scope), now=clock()
        )
    log.info("bootstrap_key", written=made)


if __name__ == "__main__":
    main()
