from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_testing.postgres import PostgresServer

Opened = Callable[..., sa.Engine]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """`open_engine`, closed after the test."""
    engines: list[sa.Engine] = []

    def call(url: str, **options: Any) -> sa.Engine:
        engines.append(open_engine(url, **options))
        return engines[-1]

    yield call
    for engine in engines:
        engine.dispose()


@pytest.fixture
def postgres_engine(postgres_server: PostgresServer) -> Iterator[sa.Engine]:
    """For what only PostgreSQL does."""
    name = postgres_server.new_database(migrated=True)
    opened = open_engine(postgres_server.url(name))
    yield opened
    opened.dispose()
    postgres_server.drop(name)
