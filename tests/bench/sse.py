"""Event streams by the thousand: one API process, and the textbook's way of doing it beside it.

Most clients follow a job of their own, a few follow all. Workers' writes come at a steady pace.
What is measured is the time from the write of a figure to each client that has to see it, then how
long one change takes to reach everybody, the memory of the process, and how soon it ends.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from sluice_core.adapters import events, redis
from sluice_core.adapters.db import claims, runs
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.adapters.db.migrate import upgrade
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_testing import factories
from sluice_testing.crowd import Crowd, Listener
from sluice_testing.process import ServerProcess, free_port, listens
from sluice_testing.redis import RedisServer

#: Events a second.
PACE = 20.0
#: Seconds of quiet before the steady part.
REST = 3.0
#: Seconds that all clients may take to connect, on a busy machine.
CONNECT = 300.0


class Writers:
    """What workers do: write figures of jobs and tell of them."""

    def __init__(self, database_url: str, redis_url: str, jobs: int) -> None:
        self.engine = open_engine(database_url)
        self._signals = redis.connect(redis_url)
        with write(self.engine) as connection:
            self.claims: list[claims.Claim] = [
                factories.run_at(connection, Actor.PARSE, now=time.time()) for _ in range(jobs)
            ]
        #: Number of a write -> when it was committed.
        self.written: dict[int, float] = {}
        self.job_of: dict[int, str] = {}

    def step(self, claim: claims.Claim) -> int:
        """One write of one job; returns its number."""
        number = len(self.written) + 1
        figures = Progress(50.0, number, 10**9, 1.0, 2.0)
        with write(self.engine) as connection:
            job = runs.write_progress(connection, claim.job, figures, now=time.time())
        self.job_of[number] = job.id
        self.written[number] = time.monotonic()
        events.emit(self._signals, events.event_of(job, "progress"))
        return number

    def pace(self, claims_: list[claims.Claim], count: int) -> None:
        """So many writes of random jobs, evenly spread."""
        begun = time.monotonic()
        for n, claim in enumerate(claims_[:count]):
            time.sleep(max(0.0, begun + n / PACE - time.monotonic()))
            self.step(claim)

    def close(self) -> None:
        self._signals.close()
        self.engine.dispose()


#: How each side is started, on a port.
SIDES = {
    "sluice": ["-m", "sluice_api"],
    "textbook": [
        *("-m", "gunicorn", "-k", "gevent", "--worker-connections", "8000"),
        *("-b", "127.0.0.1:{port}", "--graceful-timeout", "2", "tests.bench.textbook:app"),
    ],
    "bare": ["-m", "tests.bench.bare"],
}
#: Those that have streams.
STREAMING = ("sluice", "textbook")


@contextmanager
def served(
    side: str, folder: Path, environ: dict[str, str]
) -> Iterator[tuple[tuple[str, int], ServerProcess]]:
    """A started process of one side."""
    port = free_port()
    process = ServerProcess(
        [sys.executable, *(word.format(port=port) for word in SIDES[side])],
        log=folder / f"{side}.log",
        ready=lambda: listens(port) and _answers(port),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "SLUICE_HTTP_PORT": str(port),
            **environ,
        },
    )
    process.start()
    try:
        yield ("127.0.0.1", port), process
    finally:
        process.stop()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).is_success
    except httpx.HTTPError:
        return False


def memory(pid: int) -> float:
    """MiB (RSS) of the process that serves: the newest child, or the one itself."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return max(p.memory_info().rss for p in family) / 2**20


def processor(pid: int) -> float:
    """Seconds of processor time of all processes of the server so far."""
    process = psutil.Process(pid)
    return sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))


class Delays:
    """From write to arrival."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self.seconds: list[float] = []
        self.arrived: dict[int, int] = {}

    def __call__(self, number: int, _listener: Listener, at: float) -> None:
        written = self._writers.written.get(number)
        if written is not None:
            self.seconds.append(at - written)
            self.arrived[number] = self.arrived.get(number, 0) + 1

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(
    side: str,
    *,
    own: int,
    everything: int,
    seconds: float,
    folder: Path,
    environ: dict[str, str],
) -> dict[str, Any]:
    """Own-job clients and clients of everything, at `PACE`; then one change that all see."""
    writers = Writers(environ["SLUICE_DATABASE_URL"], environ["SLUICE_REDIS_URL"], own + 1)
    *mine, shared = writers.claims
    clients = own + everything
    result: dict[str, Any] = {}
    with served(side, folder, environ) as (address, process):
        delays = Delays(writers)
        crowd = Crowd(address, on_number=delays)
        used = processor(process.pid)
        crowd.connect((f"/v1/jobs/{c.job.id}/events" for c in mine), timeout=CONNECT)
        crowd.connect(("/v1/events" for _ in range(everything)), timeout=CONNECT)
        result["connect_ms"] = round(1000 * (processor(process.pid) - used) / clients, 2)
        result |= _steady(
            crowd=crowd,
            writers=writers,
            delays=delays,
            process=process,
            mine=mine,
            everything=everything,
            seconds=seconds,
        )
        result["freed_in_s"] = _free(crowd, address)
        result["all_within_ms"] = _broadcast(crowd, writers, shared, delays, clients)
        result["rss_mib"] = max(result["rss_mib"], round(memory(process.pid)))
        result["stopped_in_s"] = _stop(crowd, process)
    writers.close()
    return result


def _steady(
    *,
    crowd: Crowd,
    writers: Writers,
    delays: Delays,
    process: ServerProcess,
    mine: list[claims.Claim],
    everything: int,
    seconds: float,
) -> dict[str, Any]:
    """Writes of random jobs at `PACE`."""
    rest = time.monotonic() + REST
    crowd.run(lambda: time.monotonic() > rest, timeout=2 * REST)
    before = processor(process.pid)
    chosen = random.sample(mine, min(int(seconds * PACE), len(mine)))
    thread = threading.Thread(target=writers.pace, args=(chosen, len(chosen)))
    thread.start()
    crowd.run(lambda: not thread.is_alive(), timeout=seconds * 5)
    crowd.run(lambda: len(delays.seconds) >= len(chosen) * (1 + everything), timeout=60)
    return {
        "core_percent": round(100 * (processor(process.pid) - before) / seconds),
        "p50_ms": round(1000 * delays.percentile(0.5)),
        "p99_ms": round(1000 * delays.percentile(0.99)),
        "rss_mib": round(memory(process.pid)),
    }


def _broadcast(
    crowd: Crowd, writers: Writers, claim: claims.Claim, delays: Delays, clients: int
) -> int:
    """Milliseconds until one change has reached everybody; the worst of five."""
    path = f"/v1/events?ids={claim.job.id}"
    crowd.connect((path for _ in range(clients)), timeout=CONNECT)
    worst = 0.0
    for _ in range(5):
        delays.seconds.clear()
        writers.step(claim)
        crowd.run(lambda: len(delays.seconds) >= clients, timeout=30)
        worst = max(worst, *delays.seconds)
    return round(1000 * worst)


def _free(crowd: Crowd, address: tuple[str, int]) -> float:
    """Seconds until nothing is held for clients that all left at once."""
    crowd.close()
    begun = time.monotonic()
    url = f"http://{address[0]}:{address[1]}/v1/stats"
    while httpx.get(url, timeout=30).json()["sse_clients"]:
        time.sleep(0.05)
    return round(time.monotonic() - begun, 1)


def _stop(crowd: Crowd, process: ServerProcess) -> float:
    """Seconds from SIGTERM to the end of process and streams."""
    begun = time.monotonic()
    psutil.Process(process.pid).terminate()
    crowd.run(lambda: crowd.open == 0, timeout=CONNECT)
    process.stop()
    return round(time.monotonic() - begun, 1)


def streams(own: int = 4_900, everything: int = 100, seconds: float = 20.0) -> dict[str, Any]:
    """Both sides, one after the other, on a Redis and a SQLite of their own."""
    found: dict[str, Any] = {"clients": own + everything}
    for side in STREAMING:
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
            folder = Path(name)
            url = f"sqlite:///{folder / 'sluice.db'}"
            engine = open_engine(url)
            upgrade(engine)
            engine.dispose()
            server = RedisServer(folder / "redis")
            server.start()
            environ = {
                "SLUICE_DATA_DIR": name,
                "SLUICE_DATABASE_URL": url,
                "SLUICE_REDIS_URL": server.url,
            }
            sizes = {"own": own, "everything": everything, "seconds": seconds}
            try:
                found[side] = measure(side, **sizes, folder=folder, environ=environ)
            finally:
                server.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{streams(*(int(a) for a in sys.argv[1:]))}\n")
