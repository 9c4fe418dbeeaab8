"""Real scheduler processes on a database and a Redis of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from sluice_core.adapters import settings
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.deps import StageDeps, make_deps
from sluice_testing.process import ServerProcess


@pytest.fixture
def start_scheduler(
    tmp_path: Path, database_url: str, redis_url: str
) -> Iterator[Callable[..., ServerProcess]]:
    """Starts the real process; its log is `<name>.log` in the test's folder."""
    running: list[ServerProcess] = []
    # Files that a test has rows of are there, as far as a scheduler looks.
    open_storage(f"file://{tmp_path}/data/storage").check()

    def start(name: str = "scheduler", **env: str) -> ServerProcess:
        log = tmp_path / f"{name}.log"
        process = ServerProcess(
            [sys.executable, "-m", "sluice_scheduler"],
            log=log,
            ready=lambda: "scheduler_ready" in log.read_text("utf-8", "replace"),
            env={
                **{k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ},
                "SLUICE_DATA_DIR": str(tmp_path / "data"),
                "SLUICE_DATABASE_URL": database_url,
                "SLUICE_REDIS_URL": redis_url,
                "SLUICE_LOG_FORMAT": "json",
                "SLUICE_LEASE_PATIENCE": "2",
                **env,
            },
        )
        running.append(process)
        process.start()
        return process

    yield start
    for process in running:
        process.stop()


@pytest.fixture
def deps(engine: sa.Engine, redis_url: str, tmp_path: Path) -> Iterator[StageDeps]:
    """What a scheduler works with, in this process."""
    loaded = settings.load({"SLUICE_REDIS_URL": redis_url, "SLUICE_DATA_DIR": str(tmp_path)})
    with ExitStack() as stack:
        storage = open_storage(f"file://{tmp_path}/storage")
        yield make_deps(Actor.SETTLE, loaded, stack, engine=engine, storage=storage)
