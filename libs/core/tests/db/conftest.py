from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_testing.postgres import PostgresServer


@pytest.fixture
def postgres_engine(postgres_server: PostgresServer) -> Iterator[sa.Engine]:
    """For what only PostgreSQL does."""
    name = postgres_server.new_database(migrated=True)
    opened = open_engine(postgres_server.url(name))
    yield opened
    opened.dispose()
    postgres_server.drop(name)
