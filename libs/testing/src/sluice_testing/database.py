"""Both databases for tests, with today's tables, a fresh one for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from sluice_core.adapters.db.engine import open_engine, read
from sluice_core.adapters.db.migrate import upgrade
from sluice_testing.postgres import PostgresServer
from sluice_testing.waiting import PATIENCE, until

#: Statements of a test process that stay compiled; the code has some hundreds for each database.
_COMPILED = 2000


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Engines of this process share what they have compiled, as if they were one long-lived one.

    Each test opens engines of its own, and to compile what it asks for took half of its time.
    """
    compiled: sa.util.LRUCache[Any, Any] = sa.util.LRUCache(_COMPILED)
    # What is compiled is found by the dialect too, of which each engine has one of its own.
    dialects: dict[type[sa.Dialect], sa.Dialect] = {}

    def share(connection: sa.Connection) -> None:
        kind = type(connection.dialect)
        connection.dialect = dialects.setdefault(kind, connection.dialect)
        connection.execution_options(compiled_cache=compiled)

    event.listen(sa.Engine, "engine_connect", share)
    yield
    event.remove(sa.Engine, "engine_connect", share)


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
    """An engine of a fresh, migrated database of each kind, with patience for its other users."""
    opened = open_engine(database_url, patience=PATIENCE)
    yield opened
    opened.dispose()


def until_blocked(engine: sa.Engine, *, timeout: float = PATIENCE) -> None:
    """Wait until somebody waits for a lock; on SQLite, whose one lock is taken first, do nothing.

    Raises:
        TimeoutError: nobody did within `timeout` seconds.

    """
    if engine.dialect.name == "sqlite":
        return
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )

    def is_blocked() -> bool:
        with read(engine) as connection:
            return bool(connection.execute(query).scalar_one())

    until(is_blocked, timeout=timeout, why="nobody waits for a lock")
