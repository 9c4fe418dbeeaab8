"""Both sets of parts that Sluice runs on, as settings of a system under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice_testing.postgres import PostgresServer
from sluice_testing.s3 import S3Server

SETS = ("embedded", "cluster")


def parts_of(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings that name a fresh database and storage of this set; none for the embedded one.

    Redis is the system's own in both, unless a test names one: there is only one kind.
    """
    if kind == "embedded":
        return {}
    database: PostgresServer = request.getfixturevalue("postgres_server")
    files: S3Server = request.getfixturevalue("weed_server")
    return {
        "SLUICE_DATABASE_URL": database.url(database.new_database()),
        "SLUICE_STORAGE_URL": files.new_bucket("parts"),
    }


@pytest.fixture(params=SETS)
def parts(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """SQLite and a folder; then PostgreSQL and S3."""
    found = parts_of(request.param, request)
    yield found
    if found:
        database: PostgresServer = request.getfixturevalue("postgres_server")
        database.drop(found["SLUICE_DATABASE_URL"].rpartition("/")[2].partition("?")[0])
