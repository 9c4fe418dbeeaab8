"""How soon a job runs again whose worker, or whose child, was killed.

`python -m tests.bench.recovery` runs this alone. There is no baseline beside it: dramatiq's own
redelivery after such a loss was measured at 74 to 476 s and more.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from sluice_testing.site import SampleSite
from sluice_testing.system import System, running, until

ROUNDS = 5
PATIENCE = 90.0
#: Bytes a second: slow enough to be met in the middle, quick enough to end soon after.
SLOW = 1_000_000


def again(system: System, site: SampleSite, number: int, *, child: bool) -> float:
    """Seconds from the kill of the downloader, or of its child, to the next claim of the job."""
    link = site.url(f"/big/{8_000_000 + number}.mp4?throttle={SLOW}")
    job = system.submit(link, preset="original")
    until(lambda: _bytes(system, job["id"]) > SLOW, timeout=PATIENCE, every=0.05)
    worker = system.part("downloader")
    victim = _child(worker) if child else worker
    killed = time.time()
    victim.kill()

    def claimed() -> float | None:
        rows = system.query(
            "select claimed_at from attempts where job_id = :id and stage = 'download'"
            " and claimed_at > :killed",
            id=job["id"],
            killed=killed,
        )
        return float(rows[0][0]) if rows else None

    seconds = float(until(claimed, timeout=PATIENCE, every=0.05)) - killed
    [ended] = system.wait([job["id"]], timeout=PATIENCE)
    if ended["status"] != "SUCCESS":
        raise RuntimeError(f"the job ended as {ended['status']}: {ended['error']}")
    return seconds


def _bytes(system: System, job_id: str) -> int:
    progress = system.job(job_id)["progress"] or {}
    return int(progress.get("bytes") or 0)


def _child(worker: psutil.Process) -> psutil.Process:
    """The process that fetches: the newest below the worker's fork server."""
    return max(worker.children(recursive=True), key=lambda p: p.create_time())


def recovery() -> dict[str, float]:
    """Medians and the worst of each."""
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as name,
        SampleSite() as site,
        running(
            Path(name) / "data",
            SLUICE_EGRESS_ALLOW=site.url("").removeprefix("http://").rstrip("/"),
        ) as system,
    ):
        for victim in ("worker", "child"):
            took = [
                again(system, site, n + ROUNDS * (victim == "child"), child=victim == "child")
                for n in range(ROUNDS)
            ]
            found[f"{victim}_p50_s"] = round(statistics.median(took), 2)
            found[f"{victim}_worst_s"] = round(max(took), 2)
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{recovery()}\n")
