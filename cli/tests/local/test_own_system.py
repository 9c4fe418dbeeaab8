"""`sluice get` that starts the system for itself, on real parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sluice_testing.site import SampleSite
from sluice_testing.waiting import until

PATIENCE = 120.0


@pytest.fixture
def site() -> Iterator[SampleSite]:
    with SampleSite() as running:
        yield running


class Get:
    """The command in an empty folder with a data folder of its own."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.data = folder / ".sluice"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        self._env = {**kept, "SLUICE_DATA_DIR": str(self.data), **env}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sluice_cli", "get", *words],
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left(self) -> list[str]:
        """Processes that know this data folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SLUICE_DATA_DIR", "").startswith(str(self.data)):
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found


def allowed(site: SampleSite) -> str:
    return site.address()


@pytest.mark.timeout(400)
def test_without_a_link_it_fetches_the_sample_and_stops_all(tmp_path: Path) -> None:
    get = Get(tmp_path)
    out, err = get.start().communicate(timeout=PATIENCE)
    assert out == "downloads/plain.mp4\n", err
    assert (tmp_path / "downloads" / "plain.mp4").stat().st_size > 0
    assert get.left() == []


@pytest.mark.timeout(600)
def test_two_at_once_take_turns(tmp_path: Path, site: SampleSite) -> None:
    get = Get(tmp_path, SLUICE_EGRESS_ALLOW=allowed(site))
    both = [get.start(site.url("/mp4/small.mp4")) for _ in range(2)]
    told = [process.communicate(timeout=2 * PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    names = sorted(out.strip() for out, _ in told)
    assert names == ["downloads/small (2).mp4", "downloads/small.mp4"]
    assert any("waiting for it" in err or "Starting" in err for _, err in told)
    assert get.left() == []


def start_downloading(get: Get, site: SampleSite) -> subprocess.Popen[str]:
    """A `sluice get` in the middle of a download that takes minutes."""
    process = get.start(site.url("/big/50000000.mp4?throttle=200000"))
    assert process.stderr is not None
    deadline = time.monotonic() + PATIENCE
    while "downloading" not in process.stderr.readline():
        assert time.monotonic() < deadline
    return process


@pytest.mark.timeout(400)
def test_ctrl_c_leaves_nothing(tmp_path: Path, site: SampleSite) -> None:
    get = Get(tmp_path, SLUICE_EGRESS_ALLOW=allowed(site))
    process = start_downloading(get, site)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert get.left() == []
    assert not (tmp_path / "downloads").exists()


@pytest.mark.timeout(400)
def test_kill_9_leaves_nothing(tmp_path: Path, site: SampleSite) -> None:
    get = Get(tmp_path, SLUICE_EGRESS_ALLOW=allowed(site))
    process = start_downloading(get, site)
    until(lambda: len(get.left()) >= 8)
    process.kill()
    process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while get.left():
        assert time.monotonic() < deadline, get.left()
        time.sleep(0.1)
