"""The database and the Redis of the run: to break them, and to read them in the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluice_testing.postgres import PostgresServer, running_postgres

Undo = Callable[[], None]


class Database(Protocol):
    """Breakable in its own way."""

    @property
    def url(self) -> str: ...

    def take_away(self) -> Undo:
        """Make it unusable until the returned function is called."""


class Sqlite:
    """A file; taken away by holding its write lock."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"

    def take_away(self) -> Undo:
        connection = sqlite3.connect(self._file, timeout=5.0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            # A frozen process holds it: it is away already.
            connection.close()
            return lambda: None
        return connection.close


class Postgres:
    """A server; taken away by stopping it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._name = server.new_database()

    @property
    def url(self) -> str:
        return self._server.url(self._name)

    def take_away(self) -> Undo:
        self._server.stop()
        return self._server.start


@contextmanager
def open_database(kind: str, data: Path) -> Iterator[Database]:
    """`sqlite` or `postgresql`; to be called in the main thread, whose end ends the server."""
    if kind == "sqlite":
        yield Sqlite(data / "sluice.db")
        return
    with running_postgres() as server:
        yield Postgres(server)


class Redis:
    """The embedded server, by its socket."""

    def __init__(self, data: Path) -> None:
        self._data = data

    @contextmanager
    def client(self, number: int = 0) -> Iterator[redis.Redis]:
        [socket] = (self._data / "run").glob("**/redis.sock")
        # One that does not answer must not hold up what would make it answer again.
        no_retry = Retry(NoBackoff(), 0)
        with redis.Redis(
            unix_socket_path=str(socket), db=number, socket_timeout=2.0, retry=no_retry
        ) as client:
            yield client

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def fill(self) -> Undo:
        """Refuse every write for want of memory."""
        with self.client() as client:
            before = int(client.config_get("maxmemory")["maxmemory"] or 0)
            client.config_set("maxmemory", 1)

        def undo() -> None:
            with self.client() as client:
                client.config_set("maxmemory", before)

        return undo

    def left(self, *, locks: bool = True) -> list[str]:
        """Messages and unsettled deliveries that are still there; and locks, unless they expire."""
        found = []
        for number in (0, 1):
            with self.client(number) as client:
                for key in client.scan_iter(count=1000):
                    name = key.decode()
                    is_work = name.startswith("dramatiq:") and _holds_work(client, name)
                    is_lock = name.startswith("sluice:lock:") and (locks or client.ttl(name) == -1)
                    if is_work or is_lock:
                        found.append(name)
        return sorted(found)


def _holds_work(client: redis.Redis, name: str) -> bool:
    if "__wake__" in name or "__heartbeats__" in name or "__turns__" in name:
        return False
    # Empty ones do not exist in Redis.
    return client.type(name) in (b"hash", b"list", b"set")
