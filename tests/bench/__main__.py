"""The benchmark table: ratios taken side by side in one run. `make bench`.

The baseline ("the command") is `yt-dlp`, then `sync`, `sha256sum` and `ffprobe` of its file, since
a finished job is synced, hashed and probed too. Machines are shared and noisy: each figure is the
median of rounds in which both sides take turns.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running
from tests.bench import metrics
from tests.bench.capacity import capacity
from tests.bench.helping import helping
from tests.bench.recovery import recovery
from tests.bench.sse import streams
from tests.bench.throughput import throughput

RESULTS = Path("bench/results.json")
YT_DLP = Path(sys.executable).with_name("yt-dlp")
#: Seconds of rest over which an idle system is watched.
IDLE = 20.0


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds(text: str) -> float:
    """Unix seconds of a time as the API writes it."""
    return datetime.fromisoformat(text).timestamp()


def spoken(argv: list[str]) -> str:
    """The end of a command, without the folders of the machine that ran it."""
    return re.sub(r"\S*/", "", " ".join(argv[-3:]))[-40:]


class Bench:
    """One system, one site, one folder for the command's files."""

    def __init__(self, system: System, site: SampleSite, folder: Path) -> None:
        self._system = system
        self._site = site
        self._folder = folder
        self._number = 0

    def link(self, size: int) -> str:
        """A link that nobody asked for yet."""
        self._number += 1
        return self._site.url(f"/big/{size}.mp4?n={self._number}")

    def command(self, links: list[str], *, check: bool = True) -> None:
        """What a person would type."""
        out = Path(tempfile.mkdtemp(dir=self._folder))
        template = f"{out}/%(autonumber)s.%(ext)s"
        subprocess.run([YT_DLP, "-q", "-o", template, *links], check=True)
        if check:
            for file in out.iterdir():
                subprocess.run(["sync", file], check=True)
                subprocess.run(["sha256sum", file], check=True, stdout=subprocess.DEVNULL)
                argv = [ffmpeg_tools().ffprobe, "-v", "error", "-show_streams", file]
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(out)

    def sluice(self, links: list[str]) -> list[dict]:
        """Submit all at once and wait for the last."""
        jobs = [self._system.submit(link, preset="original") for link in links]
        ended = []
        for job in jobs:
            while (now := self._system.job(job["id"]))["status"] not in ("SUCCESS", "FAILED"):
                time.sleep(0.005)
            assert now["status"] == "SUCCESS", now["error"]
            ended.append(now)
        return ended

    def ratio(self, size: int, *, count: int = 1, rounds: int, check: bool = True) -> dict:
        """Both sides in turns; medians and their ratio."""
        command, ours = [], []
        for _ in range(rounds):
            links = [self.link(size) for _ in range(count)]
            command.append(timed(lambda links=links: self.command(links, check=check)))
            links = [self.link(size) for _ in range(count)]
            ours.append(timed(lambda links=links: self.sluice(links)))
        base, own = statistics.median(command), statistics.median(ours)
        return {
            "command_s": round(base, 3),
            "sluice_s": round(own, 3),
            "ratio": round(own / base, 2),
        }

    def steps(self, count: int) -> tuple[dict, dict]:
        """Of 1 MB jobs that come one by one: the wait for a worker, and seconds in each step."""
        waits: list[float] = []
        steps: dict[str, list[float]] = {}
        for _ in range(count):
            [job] = self.sluice([self.link(1_000_000)])
            answer = self._system.http.get(f"/v1/jobs/{job['id']}/attempts").json()
            before = seconds(job["created_at"])
            for attempt in answer["attempts"]:
                published, claimed, ended = (
                    seconds(attempt[name]) for name in ("published_at", "claimed_at", "ended_at")
                )
                waits.append(claimed - published)
                steps.setdefault(f"wait for {attempt['stage']}", []).append(claimed - before)
                steps.setdefault(attempt["stage"], []).append(ended - claimed)
                before = ended
        waits.sort()
        pickup = {
            "p50_s": round(statistics.median(waits), 4),
            "p95_s": round(waits[int(len(waits) * 0.95)], 4),
        }
        return pickup, {name: round(statistics.median(spent), 4) for name, spent in steps.items()}

    def idle(self) -> dict:
        """Memory (PSS) and processor time of the whole system at rest."""
        family = self._system.family()
        time.sleep(5)  # let what just ended settle
        before = {p.pid: sum(p.cpu_times()[:2]) for p in family}
        time.sleep(IDLE)
        used = sum(sum(p.cpu_times()[:2]) - before[p.pid] for p in family)
        pss = {f"{p.pid} {spoken(p.cmdline())}": p.memory_full_info().pss >> 20 for p in family}
        return {
            "pss_mib": sum(pss.values()),
            "core_percent": round(100 * used / IDLE, 2),
            "parts": pss,
        }


def main() -> None:
    """Run all and print the table."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
    results: dict[str, dict] = {}
    try:
        with SampleSite() as site:
            allow = site.address()
            with running(folder / "data", SLUICE_EGRESS_ALLOW=allow) as system:
                bench = Bench(system, site, folder)
                bench.ratio(1_000_000, rounds=1)  # both sides warm
                results["idle"] = bench.idle()
                results["1 MB"] = bench.ratio(1_000_000, rounds=7)
                results["200 MB"] = bench.ratio(200_000_000, rounds=5)
                results["50 x 1 MB"] = bench.ratio(1_000_000, count=50, rounds=3, check=False)
                results["pickup"], results["1 MB, step by step"] = bench.steps(20)
        results["after a kill -9"] = recovery()
        results["one long encode"] = helping()
        results["no-op messages"] = throughput()
        results["event streams"] = streams()
        results["metrics"] = metrics.figures(results["no-op messages"]["sluice_per_s"])
        results["capacity"] = capacity()
    finally:
        shutil.rmtree(folder)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for name, figures in results.items():
        shown = (f"{k}={v}" for k, v in figures.items() if k != "parts")
        sys.stdout.write(f"{name:12} {' '.join(shown)}\n")


if __name__ == "__main__":
    main()
