"""A worker waits for the process of a job's own no longer than that has something to do."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from sluice_core.adapters.db import claims, runs
from sluice_core.adapters.db.engine import write
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import alone
from sluice_testing.waiting import until


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(alone, "LOOK", 0.05)
    monkeypatch.setattr(alone, "PATIENCE", 0.5)


def test_a_process_that_never_begins_is_ended_and_the_message_comes_again(rig, monkeypatch):
    started = []
    popen = subprocess.Popen

    def start(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(alone.subprocess, "Popen", start)
    _, message = rig.job_at()
    frozen = (sys.executable, "-c", "import time; time.sleep(600)")
    with pytest.raises(RuntimeError, match="before it began"):
        alone.run_alone(replace(rig.deps(), program=frozen), message)
    assert [process.returncode for process in started] == [-9]


def test_it_is_needless_once_its_attempt_is_over(rig, engine):
    _, message = rig.job_at()
    with write(engine) as c:
        won = claims.claim(c, stage=Actor.DOWNLOAD, message=message, worker="w", now=time.time())
    needless = alone.Needless(rig.deps(), won.attempt_id)
    looks = [needless.seconds()]
    until(lambda: looks.append(needless.seconds()) or len(looks) > 30)
    assert set(looks) == {0.0}
    with write(engine) as c:
        runs.hand_back(c, won, now=time.time())
    until(lambda: needless.seconds() > alone.PATIENCE)
