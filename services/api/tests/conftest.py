"""The API on a real database and a real Redis; over a real server where that matters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from flask_openapi3 import utils as openapi_utils

from sluice_api import deps as deps_module
from sluice_api.app import EXTENSION, create_app
from sluice_api.deps import Deps
from sluice_core.adapters import settings
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import open_engine, write
from sluice_testing.process import ServerProcess, free_port, listens
from sluice_testing.redis import RedisServer
from sluice_testing.waiting import PATIENCE

MakeApp = Callable[..., Flask]


@dataclass(frozen=True)
class Shared:
    """One application for many tests that leave nothing behind."""

    client: FlaskClient
    engine: sa.Engine


@pytest.fixture(scope="session", autouse=True)
def short_reads() -> Iterator[None]:
    """Nothing is patched in this process: a read of the stream stops everybody while it waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deps_module, "STREAM_BLOCK", 0.05)
        yield


@pytest.fixture(scope="session", autouse=True)
def schemas_made_once() -> Iterator[None]:
    """Each application describes the same models, which took more than half of its making."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi_utils, "get_model_schema", cache(openapi_utils.get_model_schema))
        yield


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest,
    redis_server: RedisServer,
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "sqlite":
        (folder / "sluice.db").write_bytes(sqlite_template.read_bytes())
        url = f"sqlite:///{folder / 'sluice.db'}"
    else:
        server = request.getfixturevalue("postgres_server")
        url = server.url(server.new_database(migrated=True))
    environ = {
        "SLUICE_DATA_DIR": str(folder),
        "SLUICE_DATABASE_URL": url,
        "SLUICE_REDIS_URL": redis_server.url,
    }
    app = create_app(settings.load(environ))
    engine = open_engine(url)
    yield Shared(app.test_client(), engine)
    engine.dispose()
    app.extensions[EXTENSION].close()


@pytest.fixture
def environ(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    """Settings of the API as the environment brings them."""
    return {
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_DATABASE_URL": database_url,
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_LOG_FORMAT": "json",
    }


@pytest.fixture
def make_app(environ: dict[str, str]) -> Iterator[MakeApp]:
    """Builds the application, with further settings."""
    made: list[Flask] = []

    def make(**more: str) -> Flask:
        app = create_app(settings.load({**environ, **more}))
        made.append(app)
        return app

    yield make
    for app in made:
        app.extensions[EXTENSION].close()


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def deps(app: Flask) -> Deps:
    deps: Deps = app.extensions[EXTENSION]
    return deps


@pytest.fixture
def make_key(engine: sa.Engine) -> Callable[..., dict[str, str]]:
    """Headers with a new key of the given scopes."""

    def make(*scopes: Scope) -> dict[str, str]:
        with write(engine) as connection:
            text, _ = access.create(connection, name="test", scopes=scopes, now=1.0)
        return {"Authorization": f"Bearer {text}"}

    return make


@dataclass(frozen=True)
class Served:
    """A running API process."""

    url: str
    log: Path
    process: ServerProcess

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, **options)


@pytest.fixture
def serve(tmp_path: Path, redis_url: str, sqlite_template: Path) -> Iterator[Callable[..., Served]]:
    """Starts the real server on SQLite, a free port and further settings; `program` begins it."""
    running: list[ServerProcess] = []

    def start(program: Sequence[str] = ("-m", "sluice_api"), **more: str) -> Served:
        port = free_port()
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        database = data / "sluice.db"
        if not database.exists():
            database.write_bytes(sqlite_template.read_bytes())
        log = tmp_path / f"api-{port}.log"
        process = ServerProcess(
            [sys.executable, *program],
            log=log,
            ready=lambda: listens(port) and _answers(port),
            env={
                "PATH": os.environ["PATH"],
                "SLUICE_DATA_DIR": str(data),
                "SLUICE_REDIS_URL": redis_url,
                "SLUICE_HTTP_PORT": str(port),
                **more,
            },
        )
        running.append(process)
        process.start()
        return Served(f"http://127.0.0.1:{port}", log, process)

    yield start
    for process in running:
        process.stop()


@pytest.fixture
def served_engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """The database of `serve`, for what workers would do."""
    engine = open_engine(f"sqlite:///{tmp_path / 'data' / 'sluice.db'}", patience=PATIENCE)
    yield engine
    engine.dispose()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).is_success
    except httpx.HTTPError:
        return False
