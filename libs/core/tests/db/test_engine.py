"""A database that is away is told apart from one that refuses, and no wait is without end."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sluice_core.adapters.db import claims, jobs, liveness, moves, runs, schema
from sluice_core.adapters.db import engine as engine_module
from sluice_core.adapters.db.engine import check, open_engine, read, write
from sluice_core.adapters.db.migrate import upgrade
from sluice_core.adapters.db.schema import REVISION
from sluice_core.domain.errors import ConfigError, StoreAwayError, StoreFullError
from sluice_core.domain.lanes import Actor
from sluice_testing.database import until_blocked
from sluice_testing.factories import NOW, make_job, run_at
from sluice_testing.postgres import PostgresServer

Opened = Callable[..., sa.Engine]


def test_a_full_disk_is_told_apart(sqlite_template: Path, tmp_path: Path, opened: Opened) -> None:
    (tmp_path / "sluice.db").write_bytes(sqlite_template.read_bytes())
    engine = opened(f"sqlite:///{tmp_path / 'sluice.db'}", pool_size=1)
    with read(engine) as c:
        # As many pages as there are: for SQLite that is the end of the disk.
        c.exec_driver_sql("PRAGMA max_page_count=1")
    with pytest.raises(StoreFullError), write(engine) as c:
        c.exec_driver_sql("CREATE TABLE more AS SELECT randomblob(1000000)")
    with read(engine) as c:
        assert jobs.get(c, "0" * 26) is None


@pytest.mark.parametrize("content", [b"no database at all" * 100, None], ids=["foreign", "torn"])
def test_a_damaged_file_is_one_sentence(
    content: bytes | None, sqlite_template: Path, tmp_path: Path, opened: Opened
) -> None:
    whole = sqlite_template.read_bytes()
    (tmp_path / "sluice.db").write_bytes(content or whole[:4096] + b"\xff" * (len(whole) - 4096))
    engine = opened(f"sqlite:///{tmp_path / 'sluice.db'}")
    with pytest.raises(StoreAwayError, match=r"not a database|malformed"), write(engine) as c:
        make_job(c)


def test_postgresql_stopped_and_back(own_postgres: PostgresServer, opened: Opened) -> None:
    engine = opened(own_postgres.url(own_postgres.new_database(migrated=True)))
    with write(engine) as c:
        job = make_job(c)
    own_postgres.stop()
    for work in (write, read):
        with pytest.raises(StoreAwayError), work(engine) as c:
            jobs.get(c, job.id)
    with pytest.raises(ConfigError, match=r"^The database does not answer: "):
        check(engine)
    own_postgres.start()
    with read(engine) as c:
        assert jobs.get(c, job.id) == job


def test_postgresql_dies_within_a_transaction(own_postgres: PostgresServer, opened: Opened) -> None:
    engine = opened(own_postgres.url(own_postgres.new_database(migrated=True)))
    with pytest.raises(StoreAwayError), write(engine) as c:  # noqa: PT012  # in one transaction
        make_job(c)
        own_postgres.process.kill9()
        make_job(c)


def _session(engine: sa.Engine) -> int:
    """Process of the server that the pool's connection leads to."""
    with read(engine) as c:
        pid: int = c.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    return pid


def test_a_connection_that_ended_at_rest_is_renewed_unasked(
    postgres_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "RESTED", 3600.0)
    engine = opened(postgres_url, pool_size=1)
    before = _session(engine)
    assert _session(engine) == before
    with write(opened(postgres_url)) as c:
        ended = sa.text("SELECT pg_terminate_backend(:pid, 10000)")
        assert c.execute(ended, {"pid": before}).scalar_one()
    assert _session(engine) != before


def test_a_connection_is_asked_for_an_answer_after_a_rest_only(
    postgres_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(postgres_url, pool_size=1)
    _session(engine)
    asked: list[object] = []
    usual = engine.dialect.do_ping

    def ask(connection: Any) -> bool:
        asked.append(connection)
        return usual(connection)

    monkeypatch.setattr(engine.dialect, "do_ping", ask)
    for rested, times in ((3600.0, 0), (-1.0, 1), (3600.0, 1)):
        monkeypatch.setattr(engine_module, "RESTED", rested)
        _session(engine)
        assert len(asked) == times


def test_a_database_that_only_reads_is_away_for_writers(
    own_postgres: PostgresServer, opened: Opened
) -> None:
    url = own_postgres.url(own_postgres.new_database(migrated=True))
    with opened(url).connect() as c:
        c.execute(sa.text("ALTER ROLE postgres SET default_transaction_read_only = on"))
        c.commit()
    engine = opened(url)
    with read(engine) as c:
        assert engine_module.is_read_only(c)
    with pytest.raises(StoreAwayError, match="read-only"), write(engine) as c:
        make_job(c)


def test_postgresql_full_of_connections(own_postgres: PostgresServer, opened: Opened) -> None:
    url = own_postgres.url(own_postgres.new_database(migrated=True))
    with write(opened(url)) as c:
        c.execute(sa.text("CREATE ROLE guest LOGIN CONNECTION LIMIT 0"))
    engine = opened(url.replace("postgres@", "guest@"))
    with pytest.raises(StoreAwayError, match="too many connections"), read(engine):
        pass


#: What PgBouncer lets a client ask for at its start; of anything else it lets nobody in.
TRACKED = {
    *("user", "database", "application_name", "client_encoding"),
    *("DateStyle", "TimeZone", "IntervalStyle", "standard_conforming_strings"),
}


def _first_words(server: socket.socket) -> set[str]:
    """Names of what the first client of a PostgreSQL asks for at its start."""
    server.settimeout(30)
    client, _ = server.accept()
    with client, client.makefile("rb") as words:
        size, protocol = struct.unpack("!ii", words.read(8))
        if protocol == 80877103:  # "may I encrypt?"
            client.sendall(b"N")
            size, protocol = struct.unpack("!ii", words.read(8))
        asked = words.read(size - 8).split(b"\0")
        return {name.decode() for name in asked[:-1:2] if name}


def test_nothing_is_asked_of_a_session(opened: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(_first_words, server)
        port = server.getsockname()[1]
        engine = opened(f"postgresql+psycopg://someone@127.0.0.1:{port}/some")
        with pytest.raises(StoreAwayError), read(engine):
            pass
        assert first.result(60) <= TRACKED


@pytest.mark.parametrize("work", [read, write])
def test_each_transaction_has_limits_of_its_own(
    postgres_url: str, opened: Opened, work: Callable[[sa.Engine], Any]
) -> None:
    engine = opened(postgres_url, pool_size=1, patience=0.3)
    for _ in range(2):
        with work(engine) as c:
            limits = [
                c.execute(sa.text(f"SHOW {name}")).scalar_one()
                for name in ("lock_timeout", "idle_in_transaction_session_timeout")
            ]
        assert limits == ["300ms", "1min"]
    with engine.connect() as c:
        # As the next client of a pooler would find the session.
        session = c.connection.driver_connection
        assert session is not None
        assert session.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_upkeep_may_do_without_a_transaction(postgres_url: str, opened: Opened) -> None:
    engine = opened(postgres_url, pool_size=1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        c.exec_driver_sql("VACUUM")
    with write(engine) as c:
        c.exec_driver_sql("CREATE TABLE kept (id integer)")
    with read(engine) as c:
        assert c.execute(sa.text("SELECT count(*) FROM kept")).scalar_one() == 0


def test_a_lock_that_another_holds_is_waited_for_only_so_long(
    database_url: str, opened: Opened
) -> None:
    holder = opened(database_url)
    waiter = opened(database_url, patience=0.3)
    with write(holder) as c:
        job = make_job(c)
    with write(holder) as held:
        moves.cancel(held, job.id, now=NOW)
        began = time.monotonic()
        with pytest.raises(StoreAwayError), write(waiter) as c:
            moves.cancel(c, job.id, now=NOW)
        assert time.monotonic() - began > 0.2
        # Who only reads waits for nobody.
        with read(waiter) as c:
            assert jobs.get(c, job.id) == job


def test_a_pool_that_is_used_up_is_away(
    database_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice_core.adapters.db.engine.POOL_TIMEOUT", 0.2)
    engine = opened(database_url, pool_size=1)
    with read(engine) as c:
        c.execute(sa.text("SELECT 1"))
        with pytest.raises(StoreAwayError), read(engine) as second:
            second.execute(sa.text("SELECT 1"))


def test_an_exception_undoes_the_transaction(engine: sa.Engine) -> None:
    with pytest.raises(KeyError), write(engine) as c:  # noqa: PT012  # in one transaction
        job = make_job(c)
        raise KeyError
    with read(engine) as c:
        assert jobs.get(c, job.id) is None


def test_a_refusal_is_not_away(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
    with pytest.raises(IntegrityError), write(engine) as c:
        c.execute(sa.insert(schema.jobs).values(id=job.id))


def _cancel(c: sa.Connection, run: claims.Claim) -> object:
    return moves.cancel(c, run.job.id, now=NOW)


def _declare_lost(c: sa.Connection, run: claims.Claim) -> object:
    return liveness.declare_lost(c, run.attempt_id, max_losses=9, sweep_at=NOW, now=NOW)


@pytest.mark.parametrize(("other", "wins"), [(_cancel, True), (_declare_lost, False)])
def test_an_end_and_another_hand_at_once_do_not_block_each_other(
    engine: sa.Engine, other: Callable[[sa.Connection, claims.Claim], object], *, wins: bool
) -> None:
    """All lock the job before its attempt; two orders would be a deadlock on PostgreSQL."""
    outcome: list[object] = []
    threads: list[threading.Thread] = []
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)

    def interfere() -> None:
        with write(engine) as second:
            outcome.append(other(second, run))

    def after_the_first_lock(*_args: object) -> None:
        if not threads:
            threads.append(threading.Thread(target=interfere))
            threads[0].start()
            until_blocked(engine)

    with write(engine) as c:
        sa.event.listen(c, "after_cursor_execute", after_the_first_lock)
        runs.hand_back(c, run, now=NOW)
    threads[0].join(60)
    assert [found is not None for found in outcome] == [wins]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("what is this", "is not an address of a database"),
        ("mysql://localhost/x", "must begin with sqlite:/// or postgresql"),
        ("sqlite:////dev/null/x/y.db", "can't be made"),
    ],
)
def test_a_wrong_address_is_told_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_engine(url)


def test_check_wants_our_tables(
    database_url: str, postgres_url: str, tmp_path: Path, opened: Opened
) -> None:
    check(opened(database_url))
    for empty in (postgres_url, f"sqlite:///{tmp_path / 'empty.db'}"):
        engine = opened(empty)
        with pytest.raises(ConfigError, match="no tables yet"):
            check(engine)
        upgrade(engine)
        check(engine)


@pytest.mark.parametrize(("revision", "well"), [("0000", False), (REVISION, True), ("9999", True)])
def test_check_refuses_an_older_schema_only(
    engine: sa.Engine, revision: str, *, well: bool
) -> None:
    with write(engine) as c:
        c.execute(sa.text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
    if well:
        check(engine)
        return
    with pytest.raises(ConfigError, match=r"older release \(0000, needed .*sluice migrate"):
        check(engine)


def test_a_frozen_postgresql_is_ended_by_the_fixture(own_postgres: PostgresServer) -> None:
    own_postgres.process.send(signal.SIGSTOP)
