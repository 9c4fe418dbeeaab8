"""The short form of `make chaos`: one database, a few jobs, every failpoint at least once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_short_chaos(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--short", "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stdout
