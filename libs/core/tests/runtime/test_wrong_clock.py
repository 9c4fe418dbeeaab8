"""What a worker writes for others, e.g. when to try again, is right by everybody's clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from sluice_testing.wrong_clock import wrong_clock

#: Seconds that a busy machine may take, far less than what the clocks are wrong by.
SLOW = 120.0
_PROGRAM = """
import time
from contextlib import ExitStack
from sluice_core.adapters import settings
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.deps import open_deps
with ExitStack() as stack:
    print(open_deps(Actor.DOWNLOAD, settings.load(), stack).clock(), time.time())
"""


@pytest.mark.parametrize("ahead", [600.0, -600.0])
def test_the_runs_of_a_process_go_by_the_database(postgres_server, redis_url, tmp_path, ahead):
    name = postgres_server.new_database(migrated=True)
    begun = time.time()
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={
            "PATH": os.environ["PATH"],
            "SLUICE_DATA_DIR": str(tmp_path),
            "SLUICE_DATABASE_URL": postgres_server.url(name),
            "SLUICE_REDIS_URL": redis_url,
            **wrong_clock(tmp_path, ahead),
        },
        capture_output=True,
        check=True,
        timeout=SLOW,
    )
    # The last line: before it stands that the clock is wrong.
    runs, own = map(float, said.stdout.split(b"\n")[-2].split())
    assert begun - SLOW < runs < begun + SLOW
    assert begun + ahead - SLOW < own < begun + ahead + SLOW
