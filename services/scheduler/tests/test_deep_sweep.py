"""The deep sweep against every kind of owner, on both storages and databases."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from sluice_core.adapters.db import jobs, liveness, runs
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.ownership import owners
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.ids import new_id
from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_scheduler import sweep
from sluice_testing.factories import (
    ERROR,
    NOW,
    artifact,
    finish,
    make_job_in,
    run_at,
    start_run,
)


@pytest.fixture
def put(storage, tmp_path):
    def put_key(key):
        file = tmp_path / "content"
        file.write_bytes(b"abc")
        storage.put(key, file)
        return key

    return put_key


def keys(storage):
    return sorted([*storage.keys("work/"), *storage.keys("files/")])


def test_files_without_a_row_go(engine, storage, put):
    job_id = new_id()
    put(f"work/{job_id}/download.2/1.mp4")
    put(f"files/{job_id}/transcode.3/Ünïcode 影片.mp4")
    assert sweep.deep_sweep(engine, storage) == 2
    assert keys(storage) == []


def test_what_is_not_ours_stays(engine, storage, put):
    kept = [
        put("work/notes.txt"),
        put("files/readme/transcode.1/a.mp4"),
        put(f"work/{new_id()}/loose.mp4"),
    ]
    assert sweep.deep_sweep(engine, storage) == 0
    assert keys(storage) == sorted(kept)


def test_a_dead_epoch_of_a_success_goes_and_its_file_stays(engine, storage, put):
    """A worker was killed between put and commit; another run made the job a success."""
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
    dead = put(f"files/{run.job.id}/transcode.{run.job.epoch}/film.mp4")
    with write(engine) as c:
        # The loss is found, and the job runs again.
        assert liveness.declare_lost(c, run.attempt_id, max_losses=9, sweep_at=NOW, now=NOW)
        again = start_run(c, run.job.id)
    put(artifact(again).key)
    with write(engine) as c:
        finish(c, again)
        # Its own sweep has come by before the dead worker's last write.
        c.execute(jobs_table.update().values(sweep_at=None))
    assert sweep.deep_sweep(engine, storage) == 1
    assert keys(storage) == [artifact(again).key]
    assert dead not in keys(storage)


@pytest.mark.parametrize("stage", [Actor.PARSE, Actor.DOWNLOAD, Actor.TRANSCODE])
def test_a_live_run_loses_nothing(engine, storage, put, stage):
    with write(engine) as c:
        run = run_at(c, stage)
        stored = {"info_key": put(f"work/{run.job.id}/parse.1/info.json"), "tracks": []}
        source = put(f"work/{run.job.id}/download.2/1.mp4")
        told = {} if stage is Actor.PARSE else {"plan": stored}
        if stage is Actor.TRANSCODE:
            told["sources"] = [{"key": source}]
        if told:
            runs.describe(c, run.job, told, now=NOW)
    now = put(f"work/{run.job.id}/{stage.value}.{run.job.epoch}/new.mp4")
    later = put(f"work/{run.job.id}/download.{run.job.epoch + 2}/new.mp4")
    sweep.deep_sweep(engine, storage)
    kept = {now, later, *([stored["info_key"]] if told else [])}
    assert kept <= set(keys(storage))
    if stage is Actor.TRANSCODE:
        assert source in keys(storage)


def test_pieces_of_all_runs_stay_while_a_run_may_go_on_from_them(engine, storage, put):
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
    job_id = run.job.id
    pieces = [put(f"work/{job_id}/partial.{epoch}/a/0-16") for epoch in range(1, run.job.epoch + 1)]
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == pieces
    with write(engine) as c:
        runs.advance(c, run, to=Actor.TRANSCODE, fields={"sources": []}, now=NOW)
        start_run(c, job_id)
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == []


def test_segments_of_all_runs_stay_while_a_run_may_go_on_from_them(engine, storage, put):
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE)
        runs.describe(c, run.job, {"sources": []}, now=NOW)
    name = "0f/00000-1-aa.mp4"
    epochs = range(1, run.job.epoch + 1)
    segments = [put(f"work/{run.job.id}/segments.{epoch}/{name}") for epoch in epochs]
    assert len(segments) > 1
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == segments
    with write(engine) as c:
        runs.fail(c, run, ERROR, dead=True, sweep_at=NOW + 9, now=NOW)
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == segments
    with write(engine) as c:
        c.execute(jobs_table.update().values(sweep_at=None))
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == []


def test_of_fetched_files_the_newest_stay_while_a_run_may_go_on_from_them(engine, storage, put):
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        job_id = run.job.id
        old = put(f"work/{job_id}/download.1/0001.piece")
        new = put(f"work/{job_id}/download.{run.job.epoch}/0001.piece")
        runs.retry_later(c, run, ERROR, due_at=NOW + 600, now=NOW)
        assert jobs.get(c, job_id)
    before = put(f"work/{job_id}/download.0/0001.piece")
    sweep.deep_sweep(engine, storage)
    # The next run takes over from the newest one before its own.
    assert keys(storage) == sorted([old, new])
    assert before not in keys(storage)
    with write(engine) as c:
        run = start_run(c, job_id)
    mine = put(f"work/{job_id}/download.{run.job.epoch}/0001.piece")
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == sorted([new, mine])
    with write(engine) as c:
        runs.fail(c, run, ERROR, dead=True, sweep_at=NOW + 9, now=NOW)
    sweep.deep_sweep(engine, storage)
    assert mine in keys(storage)
    assert sweep.ended_jobs(engine, storage, now=NOW + 10) == 1
    assert keys(storage) == []
    put(old)
    sweep.deep_sweep(engine, storage)
    assert keys(storage) == []


def test_many_jobs_in_batches(engine, storage, put, monkeypatch):
    monkeypatch.setattr(sweep, "BATCH", 3)
    with write(engine) as c:
        kept = [artifact(run_at(c, Actor.TRANSCODE)).key for _ in range(4)]
    for key in kept:
        put(key)
    for _ in range(7):
        put(f"files/{new_id()}/transcode.3/film.mp4")
    assert sweep.deep_sweep(engine, storage) == 7
    assert keys(storage) == sorted(kept)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestOnAFolder:
    def test_two_at_a_time_beside_a_run_that_finishes(self, engine, tmp_path):
        """Sweeps run all the time while jobs put their files and commit: none loses one."""
        storage = FolderStorage(tmp_path / "storage")
        storage.check()
        content = tmp_path / "content"
        content.write_bytes(b"abc")
        stop = threading.Event()
        failures = []

        def sweeps():
            while not stop.is_set():
                try:
                    sweep.deep_sweep(engine, storage)
                    sweep.unfinished_puts(engine, storage, now=time.time())
                except Exception as exc:  # noqa: BLE001  # told by the test
                    failures.append(exc)

        threads = [threading.Thread(target=sweeps) for _ in range(2)]
        for thread in threads:
            thread.start()
        wanted = []
        try:
            for _ in range(25):
                with write(engine) as c:
                    run = run_at(c, Actor.TRANSCODE, now=time.time())
                key = artifact(run).key
                storage.put(key, content)
                with write(engine) as c:
                    finish(c, run, now=time.time())
                    c.execute(jobs_table.update().values(sweep_at=None))
                wanted.append(key)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert keys(storage) == sorted(wanted)


# Moto does not know when an upload began.
@pytest.mark.parametrize("storage", ["folder", "seaweedfs"], indirect=True)
class TestUnfinishedPuts:
    def test_what_a_killed_put_left_goes_when_its_run_is_over(self, engine, storage, half_put):
        with write(engine) as c:
            run = run_at(c, Actor.DOWNLOAD)
        mine = f"work/{run.job.id}/download.{run.job.epoch}/1.mp4"
        half_put(mine)
        half_put(mine.replace("download", "partial"))
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 0
        with write(engine) as c:
            runs.retry_later(c, run, ERROR, due_at=NOW, now=NOW)
            start_run(c, run.job.id)
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 2
        assert list(storage.unfinished()) == []

    def test_a_segment_that_a_helper_is_storing_stays_when_the_run_is_lost(
        self, engine, storage, half_put
    ):
        with write(engine) as c:
            run = run_at(c, Actor.TRANSCODE)
            c.execute(jobs_table.update().values(sources=[{"key": "work/x/download.2/1.mp4"}]))
        half_put(f"work/{run.job.id}/segments.{run.job.epoch}/{'f' * 32}/00001-9-{'0' * 64}.mp4")
        with write(engine) as c:
            liveness.declare_lost(c, run.attempt_id, max_losses=3, sweep_at=NOW, now=NOW)
            again = start_run(c, run.job.id)
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 0
        with write(engine) as c:
            finish(c, again)
        sweep.ended_jobs(engine, storage, now=NOW + 1)
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 1

    def test_those_of_a_finished_job_go_after_its_sweep(self, engine, storage, half_put):
        with write(engine) as c:
            run = run_at(c, Actor.TRANSCODE)
            half_put(artifact(run).key)
            finish(c, run)
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 0
        sweep.ended_jobs(engine, storage, now=NOW + 1)
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 1

    def test_those_of_a_job_without_a_row_go(self, engine, storage, half_put):
        half_put(f"files/{new_id()}/transcode.3/a.mp4")
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 1

    def test_others_go_when_they_are_old(self, engine, storage, half_put):
        half_put("work/nobody/knows~what/this.mp4")
        assert sweep.unfinished_puts(engine, storage, now=time.time()) == 0
        later = time.time() + sweep.UNFINISHED_AFTER + 60
        assert sweep.unfinished_puts(engine, storage, now=later) == 1
        assert list(storage.unfinished()) == []


@pytest.fixture
def half_put(storage, tmp_path):
    """Leaves what a process leaves that is killed within a put."""
    if isinstance(storage, FolderStorage):
        return lambda key: _killed_put(tmp_path / "storage", key, tmp_path / "half")
    return lambda key: storage._client.create_multipart_upload(  # noqa: SLF001  # nothing public stops halfway
        Bucket=storage._bucket,  # noqa: SLF001
        Key=f"some/prefix/{key}",
    )


def _killed_put(root, key, file):
    file.write_bytes(b"half")
    # Its content may be of any age: what counts is when it came to lie there.
    os.utime(file, (1, 1))
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from sluice_core.adapters.storage import folder\n"
        "folder._sync = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "folder.FolderStorage(Path(sys.argv[1])).put(sys.argv[2], Path(sys.argv[3]))\n"
    )
    command = [sys.executable, "-c", program, root, key, file]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL


def test_a_job_that_may_go_on_is_known_by_its_state(engine):
    with write(engine) as c:
        states = {s: make_job_in(c, s).id for s in Status}
        found = owners(c, list(states.values()))
    assert {s for s, i in states.items() if found[i].may_go_on} == set(Status)
    with write(engine) as c:
        c.execute(jobs_table.update().values(sweep_at=None))
        found = owners(c, list(states.values()))
    going = {s for s, i in states.items() if found[i].may_go_on}
    assert going == {Status.PENDING, Status.PARSING, Status.DOWNLOADING, Status.MERGING}
