"""Both databases for tests, with today's tables, a fresh one for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.db.migrate import upgrade
from sluice_testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with today's tables, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    engine = open_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """`SLUICE_DATABASE_URL` of a fresh, migrated database of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "sluice.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server = request.getfixturevalue("postgres_server")
    assert isinstance(server, PostgresServer)  # noqa: S101  # for the type checker
    name = server.new_database(migrated=True)
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """An engine of a fresh, migrated database of each kind."""
    opened = open_engine(database_url)
    yield opened
    opened.dispose()
