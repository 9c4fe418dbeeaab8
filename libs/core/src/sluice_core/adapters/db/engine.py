"""Opens the database and maps its troubles to ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.schema import REVISION
from sluice_core.domain.errors import ConfigError, NotYetError, StoreAwayError, StoreFullError

#: Seconds that a statement waits for another writer's lock before it calls the store away.
PATIENCE = 5.0
#: Seconds to reach PostgreSQL, and to wait for a free connection of the pool.
CONNECT_TIMEOUT = 5
POOL_TIMEOUT = 10.0
#: Seconds of rest after which a connection is asked for an answer before it is used again.
RESTED = 1.0
#: What a file that is no database, or no longer a whole one, makes SQLite say.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: SQLSTATE of PostgreSQL's `disk_full`.
_PG_DISK_FULL = "53100"
#: SQLSTATE of a write where only reading is allowed, as on a standby.
_PG_READ_ONLY = "25006"
#: Seconds after which PostgreSQL ends the transaction of a process that was frozen in it.
FROZEN_TIMEOUT = 60


def open_engine(
    url: str,
    *,
    pool_size: int = 8,
    durable: bool = False,
    patience: float = PATIENCE,
    clock: DatabaseClock | None = None,
) -> sa.Engine:
    """An engine for `sqlite:///…` or `postgresql+psycopg://…`.

    Args:
        url: SQLAlchemy address.
        pool_size: most connections that this process holds.
        durable: SQLite only: sync the log at each commit. Whoever answers a user "accepted"
            wants it; a worker's later writes may be lost with the power, and are then done again.
        patience: seconds that a statement waits for another writer's lock.
        clock: is kept by the database's; engines of one database may share it.

    Raises:
        ConfigError: one sentence when the address is of no use.

    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as exc:
        raise ConfigError("SLUICE_DATABASE_URL is not an address of a database.") from exc
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, pool_size=pool_size, durable=durable, patience=patience)
    if parsed.get_backend_name() != "postgresql":
        raise ConfigError(
            "SLUICE_DATABASE_URL must begin with sqlite:/// or postgresql+psycopg://."
        )
    return _open_postgresql(parsed, pool_size=pool_size, patience=patience, clock=clock)


def _open_postgresql(
    url: sa.URL, *, pool_size: int, patience: float, clock: DatabaseClock | None
) -> sa.Engine:
    # A transaction pooler keeps nothing of a session, and refuses what asks for that at its start.
    begin = (
        f"BEGIN; SET LOCAL lock_timeout = {patience * 1000:.0f};"
        f" SET LOCAL idle_in_transaction_session_timeout = {FROZEN_TIMEOUT * 1000}"
    )
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT,
        connect_args={
            # The driver's own BEGIN would be another way to the server and back.
            "autocommit": True,
            "connect_timeout": CONNECT_TIMEOUT,
            # A lost peer must not hold a worker for the kernel's two hours.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
            # Behind a transaction pooler a prepared statement may meet another server session.
            "prepare_threshold": None,
        },
    )
    _renew_what_ended(engine, clock)

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # Whoever asks for none, as upkeep must, gets none.
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql(begin)

    return engine


def _renew_what_ended(engine: sa.Engine, clock: DatabaseClock | None) -> None:
    """Take a new connection for one that ended at rest, so that no statement has to fail of it.

    To ask each time, as the pool's own `pre_ping` does, takes as long as a statement. The end of a
    connection is in its socket already, unless the peer vanished without a word.

    A look at the database's clock asks as well; what it costs is one way in `clock.EVERY` seconds.
    """
    driver = engine.dialect.loaded_dbapi

    @event.listens_for(engine, "checkin")
    def _rest(_connection: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _look(connection: Any, record: Any, _proxy: Any) -> None:
        rests_since = record.info.get("rests_since")
        try:
            # Waits for nothing. First the server's last words come, if any, then the end.
            connection.pgconn.consume_input()
            connection.pgconn.consume_input()
            if clock is not None and clock.is_due():
                clock.look(connection)
            elif rests_since is not None and time.monotonic() - rests_since > RESTED:
                engine.dialect.do_ping(connection)
        except driver.Error as exc:
            if rests_since is None:
                # Opened just now: what it is taken for will fail likewise, and be told as usual.
                return
            # The others of the pool ended with it; the pool opens new ones.
            raise InvalidatePoolError from exc


def _open_sqlite(url: sa.URL, *, pool_size: int, durable: bool, patience: float) -> sa.Engine:
    if url.database:
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(f"The data folder {folder} can't be made: {exc.strerror}.") from exc
    engine = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT,
        connect_args={"timeout": patience, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        # The driver's own transaction handling begins late and only for some statements.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("sluice_read_only", False)
        # A deferred transaction that turns into a writer half-way fails at once when another
        # writer was faster; IMMEDIATE waits its turn instead.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


@contextmanager
def write(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that may write; committed at the end, rolled back on an exception.

    Raises:
        StoreAwayError: the database can't be reached or does not answer in time.

    """
    with mapped(), engine.begin() as connection:
        yield connection


@contextmanager
def read(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that only reads, so that it waits for no writer.

    Raises:
        StoreAwayError: as `write`.

    """
    with mapped(), engine.connect() as connection:
        yield connection.execution_options(sluice_read_only=True)


@contextmanager
def mapped() -> Iterator[None]:
    """Turns "the database is away" in all its forms into `StoreAwayError`."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as exc:
        raise (StoreFullError if _is_full(exc) else StoreAwayError)(_one_line(exc)) from exc
    except DBAPIError as exc:
        if (
            exc.connection_invalidated
            or _sqlite_code(exc) in _DAMAGED
            or _sqlstate(exc) == _PG_READ_ONLY
        ):
            raise StoreAwayError(_one_line(exc)) from exc
        raise


def _is_full(exc: Exception) -> bool:
    return _sqlite_code(exc) == sqlite3.SQLITE_FULL or _sqlstate(exc) == _PG_DISK_FULL


def _sqlstate(exc: Exception) -> str | None:
    """PostgreSQL's code; None when the error is not PostgreSQL's."""
    return getattr(getattr(exc, "orig", None), "sqlstate", None)


def _sqlite_code(exc: Exception) -> int | None:
    """SQLite's primary result code; None when the error is not SQLite's."""
    code = getattr(getattr(exc, "orig", None), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _one_line(exc: Exception) -> str:
    # What drivers say has several lines, the first of which tells most.
    return " ".join(str(exc.__cause__ or exc).split())[:200].rstrip(" .")


def check(engine: sa.Engine) -> None:
    """Raises `NotYetError` with one sentence unless the database answers and has our tables."""
    try:
        with read(engine) as connection:
            tables = set(sa.inspect(connection).get_table_names())
            found = revision(connection)
    except StoreAwayError as exc:
        raise NotYetError(exc.sentence) from exc
    if "jobs" not in tables or found is None:
        raise NotYetError("The database has no tables yet; run `sluice migrate` first.")
    if found < REVISION:
        raise NotYetError(
            f"The database has the tables of an older release ({found}, needed {REVISION});"
            " run `sluice migrate` first."
        )


def is_read_only(connection: sa.Connection) -> bool:
    """Whether PostgreSQL takes no writes, as a standby or one that was set so.

    A full disk does not show: only a write meets it. Nor does it in SQLite, whose file belongs to
    this machine.
    """
    if connection.dialect.name != "postgresql":
        return False
    return bool(connection.execute(sa.text("SHOW transaction_read_only")).scalar_one() == "on")


def revision(connection: sa.Connection) -> str | None:
    """Of the tables that there are; None when there are none yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = sa.table("alembic_version", sa.column("version_num", sa.String))
    return connection.execute(sa.select(version.c.version_num)).scalar_one_or_none()
