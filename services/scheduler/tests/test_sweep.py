import pytest

from sluice_core.adapters.db import details, jobs, moves, sweeps
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.states import Status
from sluice_scheduler import sweep
from sluice_testing.factories import NOW, make_job_in


@pytest.fixture
def put(storage, tmp_path):
    def put_key(key):
        file = tmp_path / "content"
        file.write_bytes(b"abc")
        storage.put(key, file)

    return put_key


def keys(storage, job_id):
    return sorted(key for root in ("work", "files") for key in storage.keys(f"{root}/{job_id}/"))


def in_state(engine, status):
    with write(engine) as connection:
        return make_job_in(connection, status)


def test_a_success_keeps_its_artifact_and_nothing_else(engine, storage, put):
    job = in_state(engine, Status.SUCCESS)
    with read(engine) as connection:
        [artifact] = details.files_of(connection, [job.id])[job.id]
    put(artifact.key)
    put(f"work/{job.id}/download.2/1.mp4")
    put(f"files/{job.id}/transcode.1/of-a-dead-epoch.mp4")
    assert sweep.ended_jobs(engine, storage, now=NOW + 1) == 1
    assert keys(storage, job.id) == [artifact.key]
    assert sweep.ended_jobs(engine, storage, now=NOW + 1) == 0


def test_a_canceled_job_keeps_nothing(engine, storage, put):
    job = in_state(engine, Status.CANCELED)
    put(f"work/{job.id}/download.2/1.mp4")
    assert sweep.ended_jobs(engine, storage, now=NOW + 1) == 1
    assert keys(storage, job.id) == []


def test_a_database_slower_than_the_patience_still_lets_a_sweep_get_on(engine, storage, put):
    job = in_state(engine, Status.CANCELED)
    put(f"work/{job.id}/download.2/1.mp4")
    assert sweep.ended_jobs(engine, storage, now=NOW + 1, patience=0.0001) == 1
    assert keys(storage, job.id) == []


def test_a_failed_job_keeps_its_work_until_its_time_is_over(engine, storage, put):
    job = in_state(engine, Status.FAILED)  # its sweep is due 60 s later
    put(f"work/{job.id}/download.2/1.mp4")
    assert sweep.ended_jobs(engine, storage, now=NOW + 59) == 0
    assert keys(storage, job.id)
    assert sweep.ended_jobs(engine, storage, now=NOW + 61) == 1
    assert keys(storage, job.id) == []


def test_files_of_a_retry_that_came_in_between_stay(engine, storage, put):
    job = in_state(engine, Status.CANCELED)
    later = f"work/{job.id}/parse.{job.epoch + 2}/info.json"
    put(later)
    assert sweep.ended_jobs(engine, storage, now=NOW + 1) == 1
    assert keys(storage, job.id) == [later]


def test_a_job_that_runs_again_is_not_swept(engine, storage, put):
    job = in_state(engine, Status.FAILED)
    put(f"work/{job.id}/download.2/1.mp4")
    with write(engine) as connection:
        assert moves.retry(connection, job.id, now=NOW + 60)
    assert sweep.ended_jobs(engine, storage, now=NOW + 100) == 0
    assert keys(storage, job.id)


def test_a_deleted_job_goes_with_row_and_files(engine, storage, put):
    job = in_state(engine, Status.SUCCESS)
    put(f"files/{job.id}/transcode.3/film.mp4")
    with write(engine) as connection:
        assert moves.delete(connection, job.id, now=NOW + 1)
    assert sweep.ended_jobs(engine, storage, now=NOW + 2) == 1
    assert keys(storage, job.id) == []
    with read(engine) as connection:
        assert jobs.get(connection, job.id) is None


def test_expired_files_go_and_the_job_stays(engine, storage, put):
    job = in_state(engine, Status.SUCCESS)
    put(f"files/{job.id}/transcode.3/film.mp4")
    later = NOW + 200_000  # the factory's files last a day
    with write(engine) as connection:
        assert sweeps.expire_files(connection, now=later, limit=10) == 1
    sweep.ended_jobs(engine, storage, now=later)
    assert keys(storage, job.id) == []
    with read(engine) as connection:
        found = jobs.get(connection, job.id)
        assert found is not None
        assert found.status is Status.SUCCESS
        assert details.files_of(connection, [job.id]) == {}
