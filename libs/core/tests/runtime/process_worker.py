"""A download worker for tests, whose handler does what the link says."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice_core.domain.lanes import Actor
from sluice_core.runtime import worker
from sluice_core.runtime.children import ExecSpec, child_environment
from sluice_core.runtime.children import run as run_child
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Advance, Run
from sluice_core.runtime.stage import Handler

FOLDER = Path(os.environ["SLUICE_DATA_DIR"])


def say(*words: object) -> None:
    with (FOLDER / "said").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def handle(run: Run) -> Advance:
    what, _, seconds = run.job.request.url.rpartition("/")[2].partition("-")
    say("begin", what)
    if what == "child":
        result = run_child(
            ExecSpec(
                argv=[sys.executable, "-c", f"import time; time.sleep({seconds})"],
                scratch=run.scratch,
                env=child_environment(home=run.scratch, base={}),
            ),
            on_line=lambda _line: None,
            stop=run.stop,
            deadline_s=None,
            on_start=lambda pid, _started: say("child", pid),
        )
        say("ended", result.reason, result.exit_code)
        run.raise_for(result.reason)
    elif what == "deaf":
        time.sleep(float(seconds))
    elif what == "big":
        say("kept", len(KEPT.setdefault("bytes", bytearray(int(seconds) << 20))))
    return Advance(Actor.TRANSCODE, {"sources": []})


KEPT: dict[str, bytearray] = {}


@contextmanager
def open_handler(deps: StageDeps) -> Iterator[Handler]:
    say("start", os.getpid())
    yield handle
    say("close", len(deps.running.jobs()))


if __name__ == "__main__":
    worker.main(Actor.DOWNLOAD, open_handler, program=())
