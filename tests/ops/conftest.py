"""One running system whose failing jobs fail soon, and one sample site, for what operators do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice_testing.site import SampleSite
from sluice_testing.system import System, running

#: Exit code, lines of stdout, stderr.
Ran = tuple[int, list[str], str]


@pytest.fixture(scope="session")
def world() -> Iterator[SampleSite]:
    with SampleSite() as site:
        yield site


@pytest.fixture(scope="session")
def system(world: SampleSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(
        tmp_path_factory.mktemp("system") / "data",
        SLUICE_EGRESS_ALLOW=world.address(),
        SLUICE_MAX_TRIES="2",
        # Of a list: for the test of that cap; no other test here has a list.
        SLUICE_MAX_ENTRIES="3",
    ) as started:
        # On a busy machine they come later than the doctor waits for them.
        started.wait_for_workers()
        yield started


@pytest.fixture
def sluice(system: System, sluice_at: Callable[[System], Callable[..., Ran]]) -> Callable[..., Ran]:
    """The command, on the running system."""
    return sluice_at(system)


@pytest.fixture
def sluice_at(tmp_path: Path) -> Callable[[System], Callable[..., Ran]]:
    """The command, on any system."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}

    def at(system: System) -> Callable[..., Ran]:
        env = {**kept, "SLUICE_URL": system.url, "SLUICE_DATA_DIR": str(tmp_path / "data")}

        def run(*words: str, timeout: float = 90.0) -> Ran:
            done = subprocess.run(
                [sys.executable, "-m", "sluice_cli", *words],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
            return done.returncode, done.stdout.splitlines(), done.stderr

        return run

    return at
