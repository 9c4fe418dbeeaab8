"""A process whose stores are not fit says why in one line, and exits 2."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import sqlalchemy as sa

from sluice_testing.process import free_port
from sluice_testing.redis import RedisServer


@pytest.fixture
def good(redis_url, tmp_path, request):
    """Settings with which a worker would start; the database is asked for only where needed."""
    return {
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_DATABASE_URL": request.getfixturevalue("postgres_url"),
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_START_PATIENCE": "1",
    }


def start(settings, *module):
    """How a process ends that can't start: its status and the lines that it said."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    done = subprocess.run(
        [sys.executable, "-m", *(module or ("sluice_parser",))],
        env={**clean, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stderr.splitlines()


def migrated(settings):
    assert start(settings, "sluice_core.runtime.migrate")[0] == 0
    return settings


def refused(settings, *module):
    status, lines = start(settings, *module)
    assert status == 2
    return lines[-1]


def test_nobody_listens_at_the_database(good):
    url = f"postgresql+psycopg://u:p@127.0.0.1:{free_port()}/x"
    said = refused({**good, "SLUICE_DATABASE_URL": url})
    assert said.startswith("The database does not answer: ")
    assert "Connection refused" in said
    said = refused({**good, "SLUICE_DATABASE_URL": url}, "sluice_core.runtime.migrate")
    assert said.startswith("The database does not answer: ")


def test_a_user_that_the_database_does_not_know(good):
    url = sa.make_url(good["SLUICE_DATABASE_URL"]).set(username="nobody-knows-me")
    said = refused({**good, "SLUICE_DATABASE_URL": url.render_as_string(hide_password=False)})
    assert said.startswith("The database does not answer: ")
    assert "nobody-knows-me" in said


def test_no_tables_yet(good):
    assert "The database has no tables yet" in refused(good)


def test_redis_is_away(good):
    url = f"redis://127.0.0.1:{free_port()}"
    assert refused({**good, "SLUICE_REDIS_URL": url}).startswith("Redis does not answer")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--requirepass", "right"), "Redis refuses the user or password"),
        (("--maxmemory-policy", "allkeys-lru"), "Redis has maxmemory-policy allkeys-lru"),
    ],
)
def test_a_redis_that_is_not_fit(good, tmp_path, options, words):
    server = RedisServer(tmp_path / "own", *options)
    server.start()
    try:
        said = refused({**good, "SLUICE_REDIS_URL": server.url, "SLUICE_REDIS_PASSWORD": "wrong"})
    finally:
        server.stop()
    assert said.startswith(words)


def test_the_bucket_is_missing(good, weed_server):
    url = weed_server.url("never-made")
    assert refused(migrated({**good, "SLUICE_STORAGE_URL": url})) == (
        "The storage has no bucket 'never-made'."
    )


def test_the_storage_refuses_the_keys(good, weed_server):
    url = weed_server.new_bucket().partition("&access_key")[0]
    keys = {"SLUICE_S3_ACCESS_KEY": "nobody", "SLUICE_S3_SECRET_KEY": "x"}
    said = refused(migrated({**good, "SLUICE_STORAGE_URL": url, **keys}))
    assert said.startswith("The storage denies access to the bucket")


def test_nobody_listens_at_the_storage(good):
    keys = {"SLUICE_S3_ACCESS_KEY": "a", "SLUICE_S3_SECRET_KEY": "x"}
    url = f"s3://bucket?endpoint=http://127.0.0.1:{free_port()}"
    said = refused(migrated({**good, "SLUICE_STORAGE_URL": url, **keys}))
    assert said.startswith("The storage can't be reached: ")


def test_a_wrong_value_is_named(good):
    said = refused({**good, "SLUICE_CONCURRENCY": "many"})
    assert said.startswith("SLUICE_CONCURRENCY has a wrong value 'many'")


def test_the_data_folder_is_read_only(good, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    said = refused(migrated({**good, "SLUICE_DATA_DIR": str(file)}))
    assert "can't be written" in said


def test_a_worker_waits_for_tables_that_are_being_made(good):
    """At a first install the migration runs beside everything else."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "sluice_parser"],
        env={**os.environ, **good, "SLUICE_START_PATIENCE": "60", "SLUICE_LOG_FORMAT": "json"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert worker.stdout is not None
        for line in worker.stdout:
            if "waiting_for_store" in line:
                assert "no tables yet" in line
                migrated(good)
                break
        assert any("worker_ready" in line for line in worker.stdout)
    finally:
        worker.terminate()
        assert worker.wait(120) == 0
        worker.stdout.close()
