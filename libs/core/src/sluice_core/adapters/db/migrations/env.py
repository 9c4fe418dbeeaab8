"""Alembic's entry: runs on the connection that `sluice_core.adapters.db.migrate` hands over."""

from __future__ import annotations

from alembic import context

from sluice_core.adapters.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
)
context.run_migrations()
