"""What `sluice up` says before anything runs; its port is taken, so that it ends soon."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 120.0


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        yield {**kept, "SLUICE_DATA_DIR": str(tmp_path / "data"), "SLUICE_HTTP_PORT": port}


def up(env: dict[str, str], stderr: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice_cli", "up"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_who_waits_at_a_terminal_is_told_that_it_starts(env: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    try:
        done = up(env, theirs)
        lines = os.read(ours, 65536).decode().splitlines()
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 2
    assert lines[0] == "Starting Sluice …"
    assert "SLUICE_HTTP_PORT" in lines[1]


def test_a_log_is_not(env: dict[str, str]) -> None:
    done = up(env, subprocess.PIPE)
    assert done.returncode == 2
    assert "Starting" not in done.stdout + done.stderr
    assert "SLUICE_HTTP_PORT" in done.stderr
