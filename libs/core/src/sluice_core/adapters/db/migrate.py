"""Brings the database to the newest schema; safe to run twice and by several at once."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config

from sluice_core.adapters.db.engine import revision, write
from sluice_core.adapters.db.schema import REVISION

log = structlog.get_logger(__name__)

#: Any fixed number: PostgreSQL's advisory lock that lets one migration run at a time.
_LOCK = 715_021_914


def upgrade(engine: sa.Engine) -> None:
    """Run all missing migrations in one transaction.

    Tables of a newer release stay as they are: whoever goes back to this one can work with them,
    since a release only adds what it needs and takes away what the one before it did not.

    Raises:
        StoreAwayError: the database can't be reached.

    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with write(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK})
        found = revision(connection)
        if found is not None and found > REVISION:
            log.info("database_is_newer", found=found, known=REVISION)
            return
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
