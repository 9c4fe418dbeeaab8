"""Brings the database to the newest schema; safe to run twice and by several at once."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from sluice_core.adapters.db.engine import write

#: Any fixed number: PostgreSQL's advisory lock that lets one migration run at a time.
_LOCK = 715_021_914


def upgrade(engine: sa.Engine) -> None:
    """Run all missing migrations in one transaction.

    Raises:
        StoreAwayError: the database can't be reached.

    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with write(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
