"""A download worker for tests, whose handler does what the link says."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_core.runtime import running, worker
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Advance, Run
from sluice_core.runtime.stage import Handler
from sluice_testing.waiting import until

# Beats often, so that a look seldom takes one that lives for dead.
running.BEAT_EVERY = 0.5

#: Made by the test when slow runs may end.
END = Path(os.environ["SLUICE_DATA_DIR"]) / "end"


def began(what: str) -> int:
    return sum(line.split()[0] == what for line in (END.parent / "began").open())


def handle(run: Run) -> Advance:
    what = run.job.request.url.rpartition("/")[2]
    (END.parent / "began").open("a").write(f"{what} {os.getpid()}\n")
    if what == "poison":
        # What is beside it has begun as often.
        until(lambda: began("slow") >= began("poison"))
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "grows":
        run.progress(Progress(bytes=0))
        time.sleep(0.3)
        run.progress(Progress(bytes=2_000_000, percent=2.0))
        os.kill(os.getpid(), signal.SIGKILL)
    while what == "slow" and not END.exists():
        run.check()
        time.sleep(0.05)
    return Advance(Actor.TRANSCODE, {"sources": []})


@contextmanager
def open_handler(deps: StageDeps) -> Iterator[Handler]:
    del deps
    yield handle


if __name__ == "__main__":
    worker.main(Actor.DOWNLOAD, open_handler, program=[sys.executable, __file__])
