from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sluice_core.adapters import settings
from sluice_core.adapters.db import claims, jobs, runs
from sluice_core.adapters.db.dead_letters import Filter, list_page
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.job import Artifact, Job
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import final_key, work_key
from sluice_core.runtime.deps import StageDeps, make_deps
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import Run
from sluice_core.runtime.stage import Handler, run_stage
from sluice_core.runtime.worker import stage_worker
from sluice_testing.factories import make_job, message_of, next_order, run_at
from sluice_testing.waiting import PATIENCE


class Rig:
    """What a worker process has, on real stores, driven by hand."""

    def __init__(
        self, stack: ExitStack, folder: Path, engine: sa.Engine, redis_url: str, **env: str
    ) -> None:
        self.stack = stack
        self.engine = engine
        # Last of all: a watch that outlives the engine's own fixture opens another connection.
        stack.callback(engine.dispose)
        self.loaded = settings.load(
            {
                "SLUICE_DATA_DIR": str(folder),
                "SLUICE_REDIS_URL": redis_url,
                **env,
            }
        )
        self.loaded.store.scratch_dir.mkdir(parents=True, exist_ok=True)
        self.storage = open_storage(self.loaded.store.effective_storage_url)
        self.storage.check()
        self._deps: dict[Actor, StageDeps] = {}
        #: Whether processes watch over their runs.
        self.watch = True

    def deps(self, stage: Actor = Actor.DOWNLOAD) -> StageDeps:
        """Of one process of the stage; its watch over runs is started."""
        if stage not in self._deps:
            self._deps[stage] = self.new_deps(stage)
        return self._deps[stage]

    def new_deps(self, stage: Actor) -> StageDeps:
        deps = make_deps(stage, self.loaded, self.stack, engine=self.engine, storage=self.storage)
        if self.watch:
            deps.running.start()
            # One that outlives its test opens a connection that nobody closes.
            self.stack.callback(deps.running.stop, PATIENCE)
        return deps

    def worker(self, handle: Handler, stage: Actor = Actor.DOWNLOAD) -> StageDeps:
        """A started worker of a process of its own; returns its deps."""
        deps = self.new_deps(stage)
        worker = stage_worker(deps, handle)
        worker.start()
        self.stack.callback(worker.stop, PATIENCE)
        self.stack.callback(worker.drain, 0.0)
        return deps

    def job_at(self, stage: Actor = Actor.DOWNLOAD, **fields: Any) -> tuple[Job, claims.Message]:
        """A job that waits for the stage, and its message, not published."""
        with write(self.engine) as c:
            if stage is Actor.PARSE:
                job = make_job(c, now=time.time(), **fields)
            else:
                run = run_at(c, stage, now=time.time(), **fields)
                job, _ = runs.hand_back(c, run, now=time.time())
            return job, message_of(next_order(c, job.id), now=time.time())

    def publish(self, job: Job) -> None:
        with read(self.engine) as c:
            row = next_order(c, job.id)
        deps = next(iter(self._deps.values()), None) or self.deps()
        # As the relay does once it is due.
        order = OutboxRow(row.id, row.job_id, Actor(row.actor), row.queue, row.epoch, due_at=0.0)
        publish_now(deps.broker, [order], now=time.time())

    def run(self, handle: Handler, message: claims.Message, stage: Actor = Actor.DOWNLOAD) -> None:
        run_stage(self.deps(stage), handle, message)

    def now(self, job: Job) -> Job:
        with read(self.engine) as c:
            found = jobs.get(c, job.id)
        assert found is not None
        return found

    def order(self, job: Job) -> Any:
        with read(self.engine) as c:
            return next_order(c, job.id)

    def attempts(self, job: Job) -> list[Any]:
        with read(self.engine) as c:
            return jobs.attempts_of(c, job.id)

    def letters(self) -> list[Any]:
        with read(self.engine) as c:
            return list_page(c, Filter(), before_id=None, limit=100)

    def keys(self, job: Job) -> list[str]:
        found = [*self.storage.keys(f"work/{job.id}/"), *self.storage.keys(f"files/{job.id}/")]
        return sorted(found)


def put(run: Run, name: str = "film.mp4", *, final: bool = False) -> Artifact:
    """Store a file of the run, as handlers do."""
    file = run.scratch / name
    file.write_bytes(b"abc")
    key = (final_key if final else work_key)(run.id, name)
    run.deps.storage.put(key, file)
    return Artifact(name, "video", key, 3, "0" * 64, "video/mp4")


@pytest.fixture(name="put")
def put_fixture() -> Callable[..., Artifact]:
    return put


@pytest.fixture
def rig(tmp_path: Path, engine: sa.Engine, redis_url: str) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack, tmp_path / "data", engine, redis_url)


@pytest.fixture
def new_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:
        yield lambda engine, redis_url, **env: Rig(
            stack, tmp_path / "data", engine, redis_url, **env
        )
