"""A transcode worker for tests: each run takes as long as its link says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sluice_core.domain.job import Artifact
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import final_key
from sluice_core.runtime import worker
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Finished, Run
from sluice_core.runtime.stage import Handler


def handle(run: Run) -> Finished:
    """The link ends with its number and seconds, e.g. `https://media.example/7/2.5`."""
    number, seconds = run.job.request.url.split("/")[-2:]
    end = time.monotonic() + float(seconds)
    folder = run.deps.settings.store.data_dir
    hurry = [folder / name for name in ("hurry", f"hurry-{number}")]
    while (left := end - time.monotonic()) > 0 and not any(word.exists() for word in hurry):
        run.check()
        time.sleep(min(0.1, left))
    file = run.scratch / "film.mp4"
    file.write_bytes(b"abc")
    key = final_key(run.id, "film.mp4")
    run.deps.storage.put(key, file)
    return Finished([Artifact("film.mp4", "video", key, 3, "0" * 64, "video/mp4")])


@contextmanager
def open_handler(deps: StageDeps) -> Iterator[Handler]:
    del deps
    yield handle


if __name__ == "__main__":
    worker.main(Actor.TRANSCODE, open_handler, program=())
