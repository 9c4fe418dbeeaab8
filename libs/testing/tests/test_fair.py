"""A promise holds on a busy machine, and one that is broken is seen there too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import psutil
import pytest

from sluice_testing.fair import FairClock
from sluice_testing.require import require

HOG = "while True: pass"
HOGS = 3
#: Seconds of work, and of doing nothing.
WORK, NAP = 0.4, 1.0


@pytest.fixture
def crowded():
    """Starts programs on one core, on which others never rest."""
    require(hasattr(os, "sched_setaffinity"), "cores that can be chosen (Linux)")
    core = max(os.sched_getaffinity(0))
    with ExitStack() as stack:

        def start(program):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-Sc", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            return process

        for _ in range(HOGS):
            start(HOG)
        yield start


def clocked(process):
    """Its seconds until it ends, by a fair clock and by a usual one."""
    # It has started, and waits for a word.
    assert process.stdout.readline()
    found = psutil.Process(process.pid)
    clock, begun = FairClock([found]), time.monotonic()
    process.stdin.write(b"\n")
    process.stdin.flush()
    while found.status() != psutil.STATUS_ZOMBIE:
        last = clock.seconds, time.monotonic() - begun
        time.sleep(0.005)
    return last


def test_work_that_has_to_wait_takes_no_longer(crowded):
    work = f"import time; print(flush=True); input()\nwhile time.process_time() < {WORK}: pass"
    fair, usual = clocked(crowded(work))
    assert usual > 2 * WORK
    assert fair < 2 * WORK


def test_idleness_is_not_excused_by_others(crowded):
    fair, _usual = clocked(crowded(f"import time; print(flush=True); input(); time.sleep({NAP})"))
    assert fair > 0.8 * NAP
