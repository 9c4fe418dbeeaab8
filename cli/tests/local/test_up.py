"""`sluice up` with all its real parts."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from sluice_cli.local import folder
from sluice_testing.process import free_port, is_alive
from sluice_testing.waiting import until

PATIENCE = 90.0


class Up:
    """One instance."""

    def __init__(self, data: Path, **env: str) -> None:
        self.data = data
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        self.env = {**kept, "SLUICE_DATA_DIR": str(data), "SLUICE_HTTP_PORT": "0", **env}
        self.output = data.with_suffix(".out")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sluice_cli", "up"],
                env=self.env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_ready(self) -> str:
        until(
            lambda: "Sluice is ready: " in self._said(),
            timeout=PATIENCE,
            why=f"ready: {self._said()}",
        )
        return self._said().partition("Sluice is ready: ")[2].split()[0]

    def _said(self) -> str:
        assert self.process.poll() is None, self.output.read_text()
        return self.output.read_text()

    @property
    def socket(self) -> Path:
        return folder.socket_folder(self.data, name="redis.sock") / "redis.sock"

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sluice_cli", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )


@contextmanager
def running(data: Path, **env: str) -> Iterator[Up]:
    up = Up(data, **env)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.process.kill()
        up.process.wait()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(is_alive, processes))


@pytest.mark.timeout(400)
def test_two_instances_side_by_side_and_their_ends(tmp_path: Path) -> None:
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        urls = {one.wait_ready(), two.wait_ready()}
        assert len(urls) == 2
        assert one.socket != two.socket
        assert {httpx.get(f"{url}/readyz", timeout=60).status_code for url in urls} == {200}

        # Commands find the instance by its folder; nobody else may open its socket's folder.
        assert one.run("queues").returncode == 0
        assert stat.S_IMODE(one.socket.parent.stat().st_mode) == 0o700

        second = one.run("up")
        assert second.returncode == 2
        assert "Another Sluice runs on the data folder" in second.stderr
        assert str(one.process.pid) in second.stderr

        # The API answers before each part has a process of its own.
        until(
            lambda: len(one.family()) >= 6 and len(two.family()) >= 6,
            why="parts are missing",
        )
        families = one.family() + two.family()
        one.process.send_signal(signal.SIGINT)
        two.process.kill()
        assert one.process.wait(PATIENCE) == 0
        until(lambda: gone(families), why="nothing is left")
        assert not (tmp_path / "one" / folder.STATE).exists()

        # What was killed leaves a folder that can be used again.
        with running(tmp_path / "two") as again:
            again.wait_ready()


@pytest.mark.timeout(400)
def test_a_killed_redis_comes_back_on_its_socket(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "data", SLUICE_METRICS_PORT=str(port)) as up:
        url = up.wait_ready()
        # One page for all processes: the API's.
        page = f"http://127.0.0.1:{port}/metrics"
        workers = {f'sluice_workers{{stage="{s}"}} 1.0' for s in ("parse", "download", "transcode")}
        until(
            lambda: workers <= set(httpx.get(page, timeout=60).text.splitlines()),
            timeout=PATIENCE,
            why="the page shows the workers",
        )
        assert httpx.get(f"{url}/metrics", timeout=60).status_code == 404
        with redis.Redis(unix_socket_path=str(up.socket)) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            first = client.info("server")["process_id"]
            assert isinstance(first, int)
            os.kill(first, signal.SIGKILL)

            def back() -> bool:
                try:
                    return bool(client.info("server")["process_id"] != first)
                except redis.ConnectionError:
                    return False

            until(back, why="Redis is back")
        until(
            lambda: httpx.get(f"{url}/readyz", timeout=60).is_success,
            timeout=PATIENCE,
            why="ready again",
        )
        assert "redis ended (killed by SIGKILL); next start in 0.5 s" in up.output.read_text()
