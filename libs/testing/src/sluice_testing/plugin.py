"""Fixtures for all members: real servers, one per test process, emptied for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluice_testing.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
