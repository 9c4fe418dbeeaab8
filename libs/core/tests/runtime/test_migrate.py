"""The migration as a program, on both databases."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sluice_core.adapters.db import access
from sluice_core.adapters.db.engine import check, open_engine, read, revision, write

KEY = "chosen-by-the-operator-0123456789-abcdef"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request, tmp_path):
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    return request.getfixturevalue("postgres_url")


def migrate(url, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    command = [sys.executable, "-m", "sluice_core.runtime.migrate"]
    return subprocess.Popen(
        command,
        env={**clean, "SLUICE_DATABASE_URL": url, **env},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(process):
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_three_at_once_and_again_with_a_first_key(empty_url):
    started = [migrate(empty_url, SLUICE_BOOTSTRAP_KEY=KEY) for _ in range(3)]
    for process in started:
        status, said = ended(process)
        assert status == 0, said
        assert KEY not in said
    engine = open_engine(empty_url)
    check(engine)
    with write(engine) as connection:
        found = access.lookup(connection, KEY)
        assert found is not None
        assert found.scopes == set(access.Scope)
        access.revoke(connection, found.id, now=1.0)
    # Revoked is for good, whatever the operator's values still say.
    status, said = ended(migrate(empty_url, SLUICE_BOOTSTRAP_KEY=KEY))
    assert status == 0, said
    with read(engine) as connection:
        assert access.lookup(connection, KEY) is None
        assert len(access.list_keys(connection)) == 1
    engine.dispose()


def test_what_is_wrong_is_one_sentence_and_exit_2(tmp_path):
    status, said = ended(migrate(f"sqlite:///{tmp_path}/a.db", SLUICE_BOOTSTRAP_KEY="short"))
    assert status == 2
    assert "SLUICE_BOOTSTRAP_KEY needs at least 32 characters." in said
    status, said = ended(migrate("nonsense"))
    assert status == 2
    assert len(said.strip().splitlines()) == 1


def test_going_back_to_this_release_leaves_the_tables_of_a_newer_one(empty_url):
    assert ended(migrate(empty_url))[0] == 0
    engine = open_engine(empty_url)
    with write(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql("ALTER TABLE jobs ADD COLUMN of_the_future TEXT")
    status, said = ended(migrate(empty_url))
    assert status == 0, said
    check(engine)
    with read(engine) as connection:
        assert revision(connection) == "9999"
    engine.dispose()
