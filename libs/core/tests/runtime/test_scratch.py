"""Folders of runs: taken over and swept only when no process writes in them any more."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import liveness, runs, sweeps
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.ids import new_id
from sluice_core.domain.job import JobError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import WARM_UP, RunId
from sluice_core.domain.states import Status
from sluice_core.runtime import scratch
from sluice_core.runtime.children import lock_is_held
from sluice_core.runtime.children.spec import LOCK_NAME
from sluice_testing.factories import NOW, make_job_in, run_at

Hold = Callable[[Path], "subprocess.Popen[bytes]"]

_WRITER = """
import sys
from pathlib import Path
from sluice_core.runtime.children.proof import take_lock
take_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts a process that holds a folder's lock, as a media child does."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(folder / LOCK_NAME)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def folder(root: Path, job_id: str, epoch: int, stage: Actor = Actor.DOWNLOAD) -> Path:
    made = root / RunId(job_id, stage, epoch).folder
    made.mkdir(parents=True)
    (made / "137.part").write_bytes(b"abc")
    (made / LOCK_NAME).touch()
    (made / scratch.TAKEN).touch()
    return made


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestSweep:
    def test_a_folder_in_use_stays_whatever_the_database_says(
        self, engine: sa.Engine, tmp_path: Path, hold: Hold
    ) -> None:
        used, left = (folder(tmp_path, new_id(), 1) for _ in range(2))
        writer = hold(used)
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 1
        assert (used / "137.part").read_bytes() == b"abc"
        assert not left.exists()
        writer.kill()
        writer.wait()
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 1
        assert not used.exists()

    def test_what_an_owner_may_still_use_stays(self, engine: sa.Engine, tmp_path: Path) -> None:
        with write(engine) as c:
            run = run_at(c, Actor.DOWNLOAD)
            ended = make_job_in(c, Status.SUCCESS)
            failed = make_job_in(c, Status.FAILED)  # its sources are stored
        mine = folder(tmp_path, run.job.id, run.job.epoch)
        dead = folder(tmp_path, run.job.id, run.job.epoch - 1)
        useless = [folder(tmp_path, job.id, job.epoch) for job in (ended, failed)]
        other_stage = folder(tmp_path, new_id(), 1, Actor.PARSE)
        foreign = tmp_path / f"notes-{uuid.uuid4().hex}"
        foreign.mkdir()
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 3
        assert [p.exists() for p in (mine, other_stage, foreign)] == [True] * 3
        assert [p.exists() for p in (dead, *useless)] == [False] * 3

    def test_the_newest_partial_download_waits_for_the_next_run(
        self, engine: sa.Engine, tmp_path: Path
    ) -> None:
        with write(engine) as c:
            run = run_at(c, Actor.DOWNLOAD)
            assert liveness.declare_lost(c, run.attempt_id, max_losses=9, sweep_at=NOW, now=NOW)
        old = folder(tmp_path, run.job.id, run.job.epoch - 1)
        newest = folder(tmp_path, run.job.id, run.job.epoch)
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 1
        assert (old.exists(), newest.exists()) == (False, True)

    def test_nothing_goes_that_the_next_run_is_about_to_take_over(
        self, engine: sa.Engine, tmp_path: Path
    ) -> None:
        with write(engine) as c:
            run = run_at(c, Actor.DOWNLOAD)
        old = folder(tmp_path, run.job.id, run.job.epoch - 1)
        own = tmp_path / RunId(run.job.id, Actor.DOWNLOAD, run.job.epoch).folder
        own.mkdir()
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 0
        assert (old / "137.part").exists()
        assert len(scratch.take_over(tmp_path, RunId(run.job.id, Actor.DOWNLOAD, run.job.epoch)))
        assert (own / "137.part").exists()

    def test_partial_work_of_a_failed_job_stays_until_its_time_is_over(
        self, engine: sa.Engine, tmp_path: Path
    ) -> None:
        error = JobError("forbidden", "manual", "no")
        with write(engine) as c:
            run = run_at(c, Actor.DOWNLOAD)
            runs.fail(c, run, error, dead=False, sweep_at=NOW + 60, now=NOW)
        partial = folder(tmp_path, run.job.id, run.job.epoch)
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 0
        with write(engine) as c:
            swept = sweeps.begin(c, run.job.id, now=NOW + 60)
            assert swept is not None
            sweeps.done(c, swept)
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 1
        assert not partial.exists()

    def test_a_folder_that_is_away_ends_nobody(self, engine: sa.Engine, tmp_path: Path) -> None:
        assert scratch.sweep(engine, tmp_path / "away", Actor.DOWNLOAD) == 0
        (tmp_path / "file").touch()
        assert scratch.sweep(engine, tmp_path / "file", Actor.DOWNLOAD) == 0

    def test_what_a_killed_warm_up_left_goes(self, engine: sa.Engine, tmp_path: Path) -> None:
        old, new = tmp_path / f"{WARM_UP}old", tmp_path / f"{WARM_UP}new"
        for folder in (old, new):
            folder.mkdir()
            (folder / "a.media.part").write_bytes(b"abc")
        os.utime(old, (1, 1))
        assert scratch.sweep(engine, tmp_path, Actor.PARSE) == 1
        assert not old.exists()
        assert new.exists()

    def test_more_than_one_batch(
        self, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scratch, "BATCH", 2)
        with write(engine) as c:
            owned = [run_at(c, Actor.DOWNLOAD).job for _ in range(5)]
        kept = [folder(tmp_path, job.id, job.epoch) for job in owned]
        useless = [folder(tmp_path, new_id(), 1) for _ in range(5)]
        assert scratch.sweep(engine, tmp_path, Actor.DOWNLOAD) == 5
        assert all(p.exists() for p in kept)
        assert not any(p.exists() for p in useless)


def test_only_proven_dead_writers_are_taken_over(tmp_path: Path, hold: Hold) -> None:
    job_id = new_id()
    alive, dead = folder(tmp_path, job_id, 1), folder(tmp_path, job_id, 2)
    (dead / "140.part").write_bytes(b"sound")
    other = folder(tmp_path, new_id(), 2)
    writer = hold(alive)
    run = RunId(job_id, Actor.DOWNLOAD, 5)
    own = tmp_path / run.folder
    own.mkdir()
    taken = scratch.take_over(tmp_path, run)
    assert sorted(p.name for p in taken) == ["137.part", "140.part"]
    assert not dead.exists()
    assert (alive / "137.part").exists()
    assert (other / "137.part").exists()
    writer.kill()
    writer.wait()
    assert not lock_is_held(alive / LOCK_NAME)
    # Older than what was taken already: its own file of that name is worth nothing.
    assert scratch.take_over(tmp_path, run) == []
    assert not alive.exists()


def test_files_of_two_runs_are_never_put_together(tmp_path: Path) -> None:
    job_id = new_id()
    older, newer = (tmp_path / RunId(job_id, Actor.DOWNLOAD, n).folder for n in (1, 2))
    for made, names in (
        (older, ["a.video.media", "b.audio.media.part", "b.audio.media.ytdl"]),
        (newer, ["b.audio.media.part"]),
    ):
        made.mkdir()
        for name in names:
            (made / name).write_text(made.name)
    run = RunId(job_id, Actor.DOWNLOAD, 3)
    own = tmp_path / run.folder
    own.mkdir()
    scratch.take_over(tmp_path, run)
    found = {p.name: p.read_text() for p in own.iterdir() if p.name != scratch.TAKEN}
    assert found == {"a.video.media": older.name, "b.audio.media.part": newer.name}
    assert not older.exists()
    assert not newer.exists()
