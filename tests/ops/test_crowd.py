"""Many clients of one API process: all are told, none costs much, and the end is quick."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
import redis as redis_library
import sqlalchemy as sa

from sluice_core.adapters import events, redis
from sluice_core.adapters.db import claims, runs
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import Actor
from sluice_testing import factories
from sluice_testing.crowd import Crowd, Listener
from sluice_testing.fair import FairClock
from sluice_testing.postgres import PostgresServer
from sluice_testing.process import ServerProcess, free_port, listens
from sluice_testing.waiting import until

OWN, EVERYTHING = 400, 20
PATIENCE = 120.0


@dataclass
class Stage:
    """A served API, the jobs of its clients, and whoever writes them."""

    url: str
    address: tuple[str, int]
    process: ServerProcess
    engine: sa.Engine
    signals: redis_library.Redis
    runs: list[claims.Claim]
    #: Number of a write -> when it was committed.
    written: dict[int, float] = field(default_factory=dict)
    #: Seconds from write to arrival.
    delays: list[float] = field(default_factory=list)

    def step(self, run: claims.Claim) -> None:
        number = len(self.written) + 1
        with write(self.engine) as connection:
            figures = Progress(50.0, number, 10**9, 1.0, 2.0)
            job = runs.write_progress(connection, run.job, figures, now=time.time())
        self.written[number] = time.monotonic()
        events.emit(self.signals, events.event_of(job, "progress"))

    def note(self, number: int, _listener: Listener, at: float) -> None:
        if number in self.written:
            self.delays.append(at - self.written[number])

    def crowd(self) -> Crowd:
        return Crowd(self.address, on_number=self.note)

    def worker(self) -> psutil.Process:
        """The process that serves."""
        return psutil.Process(self.process.pid).children()[0]

    def clients(self) -> int:
        answer = httpx.get(f"{self.url}/v1/stats", timeout=PATIENCE)
        return int(answer.json()["sse_clients"])


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path
) -> Iterator[str]:
    """Address of one with tables and nothing in them."""
    if request.param == "sqlite":
        (tmp_path / "sluice.db").write_bytes(sqlite_template.read_bytes())
        yield f"sqlite:///{tmp_path / 'sluice.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.new_database(migrated=True)
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def stage(tmp_path: Path, redis_url: str, database: str) -> Iterator[Callable[..., Stage]]:
    engine = open_engine(database)
    signals = redis.connect(redis_url)
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return listens(port) and httpx.get(f"{url}/livez", timeout=5).is_success
        except httpx.HTTPError:
            return False

    process = ServerProcess(
        [sys.executable, "-m", "sluice_api"],
        log=tmp_path / "api.log",
        ready=ready,
        env={
            "PATH": os.environ["PATH"],
            "SLUICE_DATA_DIR": str(tmp_path),
            "SLUICE_DATABASE_URL": database,
            "SLUICE_REDIS_URL": redis_url,
            "SLUICE_HTTP_PORT": str(port),
        },
    )

    def make(jobs: int, **fields: object) -> Stage:
        with write(engine) as connection:
            begun = [
                factories.run_at(connection, Actor.PARSE, now=time.time(), **fields)
                for _ in range(jobs)
            ]
        process.start()
        return Stage(url, ("127.0.0.1", port), process, engine, signals, begun)

    yield make
    process.stop()
    signals.close()
    engine.dispose()


def test_a_crowd(stage):
    """One process from its first request to its end."""
    on = stage(OWN)
    crowd = on.crowd()
    # The first requests come at once, as after a restart: none of them may hang.
    crowd.connect((f"/v1/jobs/{run.job.id}/events" for run in on.runs[:100]), timeout=PATIENCE)
    before = on.worker().memory_info().rss
    crowd.connect((f"/v1/jobs/{run.job.id}/events" for run in on.runs[100:]), timeout=PATIENCE)
    each = (on.worker().memory_info().rss - before) / (OWN - 100)
    assert each < 16 * 1024, f"{each:.0f} bytes for each client"
    crowd.connect(("/v1/events" for _ in range(EVERYTHING)), timeout=PATIENCE)
    assert on.clients() == OWN + EVERYTHING

    clock, begun = FairClock([psutil.Process(), on.worker()]), time.monotonic()
    for run in on.runs[:60]:
        on.step(run)
        crowd.turn(0.05)
    crowd.run(lambda: len(on.delays) >= 60 * (1 + EVERYTHING), timeout=PATIENCE)
    slowness = (time.monotonic() - begun) / clock.seconds
    # Each event once to its own client and once to each that follows all; nobody else's.
    assert len(on.delays) == 60 * (1 + EVERYTHING)
    assert sorted(on.delays)[len(on.delays) // 2] < 0.5 * slowness

    crowd.close(OWN // 2)
    until(lambda: on.clients() == OWN // 2 + EVERYTHING)

    clock = FairClock([psutil.Process(), on.worker()])
    on.worker().terminate()
    crowd.run(lambda: crowd.open == 0, timeout=PATIENCE)
    assert clock.seconds < 3
    hints = [one.last.rpartition(b"retry: ")[2] for one in crowd.listeners.values()]
    assert all(1000 <= int(hint) < 5000 for hint in hints)
    assert len(set(hints)) > len(hints) // 4, "they would all come back at once"
    crowd.close()


def test_none_of_many_at_once_hangs(stage):
    """Each submit makes ids, writes and tells of it in a thread that others run beside."""
    on = stage(0)
    answers: list[int] = []

    def submit(client: int) -> None:
        with httpx.Client(base_url=on.url, timeout=PATIENCE / 2) as http:
            for n in range(60):
                link = f"https://media.example/{client}/{n}"
                answers.append(http.post("/v1/jobs", json={"url": link}).status_code)

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(submit, range(8)))
    assert answers == [202] * 8 * 60


def test_a_client_that_takes_nothing_is_told_the_newest_of_each_job_in_the_end(stage):
    on = stage(200, metadata={"text": "x" * 16_000})
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(PATIENCE)
        slow.connect(on.address)
        slow.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received = bytearray()
        while received.count(b"\nevent: job") < len(on.runs):
            received += slow.recv(65_536)
        quick = on.crowd()
        quick.connect(["/v1/events"], timeout=PATIENCE)
        for round_ in range(6):
            for run in on.runs:
                with write(on.engine) as connection:
                    title = {"title": f"round {round_}"}
                    job = runs.describe(connection, run.job, title, now=time.time())
                events.emit(on.signals, events.event_of(job, "job"))
                quick.turn(0)
        late = bytearray()
        while late.count(b'"title":"round 5"') < len(on.runs):
            late += slow.recv(65_536)
        quick.close()
    # Far less than was told: what came in between was replaced.
    assert late.count(b"\nevent: job") < 4 * len(on.runs)
