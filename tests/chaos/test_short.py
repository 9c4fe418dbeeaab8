"""The short form of the chaos run: 24 jobs, 24 s of faults, each failpoint of a folder once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Seconds; some 80 are usual, most of them spent on noticing the last lost workers.
DEADLINE = 540.0


@pytest.mark.timeout(DEADLINE + 30)
def test_nothing_lost_nothing_twice_nothing_left_behind():
    # A process of its own: servers that it starts end with its main thread.
    command = [sys.executable, "-m", "tests.chaos", "--short", "--seed", "3"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, check=False, timeout=DEADLINE, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired as exc:
        said = exc.stdout.decode() if isinstance(exc.stdout, bytes) else exc.stdout
        pytest.fail(f"no end after {DEADLINE} s:\n{said}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
