"""Fixtures for all members: real servers, one per test process, emptied for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluice_core.runtime.children import runner
from sluice_testing.certificates import certificate
from sluice_testing.clips import make, media
from sluice_testing.database import (
    database_url,
    engine,
    sqlite_template,
    statements_compiled_once,
)
from sluice_testing.fixtures_site import sample_site
from sluice_testing.parts import parts
from sluice_testing.postgres import own_postgres, postgres_server, postgres_url
from sluice_testing.redis import RedisServer
from sluice_testing.s3 import moto_server, s3_url, storage, weed_server
from sluice_testing.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "certificate",
    "children_may_start_slowly",
    "database_url",
    "engine",
    "make",
    "media",
    "moto_server",
    "own_postgres",
    "own_redis",
    "parts",
    "postgres_server",
    "postgres_url",
    "redis_server",
    "redis_url",
    "s3_url",
    "sample_site",
    "sqlite_template",
    "statements_compiled_once",
    "storage",
    "weed_server",
]


@pytest.fixture(scope="session", autouse=True)
def children_may_start_slowly() -> Iterator[None]:
    """A busy machine takes longer than a worker waits to load what a fork server preloads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "START_TIMEOUT", 3 * PATIENCE)
        yield


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The Redis of this test process; what a test does to it, it must undo."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """URL of an empty Redis."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to be killed and frozen."""
    server = RedisServer(tmp_path / "own-redis")
    server.start()
    yield server
    server.stop()
