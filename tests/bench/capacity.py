"""What one Redis, one PostgreSQL and one API process carry, in processor time and bytes.

`python -m tests.bench.capacity` runs this alone. Processor time is what a machine needs per unit of
work, so it holds on other machines too; rates of one run depend on who else was busy.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis
import sqlalchemy as sa

from sluice_core.adapters.db import runs
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import STAGES
from sluice_testing import factories
from sluice_testing.postgres import PostgresServer, running_postgres
from sluice_testing.redis import RedisServer
from tests.bench.sse import processor, served
from tests.bench.throughput import MESSAGES, ours, stage_of

#: Jobs that live their whole life in the database, and those that come in through the API.
JOBS = 2_000
SUBMITS = 3_000
#: Links of one batch, the most there may be.
BATCH = 10_000
#: Writes of progress in one job: some seconds of download and of encoding.
WRITES = 9
#: At once.
CLIENTS = 4


@dataclass
class Cost:
    """What some work took."""

    seconds: float = 0.0
    #: Processor seconds.
    used: float = 0.0


@contextmanager
def costing(used: Callable[[], float]) -> Iterator[Cost]:
    """Filled in at the end.

    Args:
        used: processor seconds of the server so far.

    """
    cost, before, begun = Cost(), used(), time.perf_counter()
    yield cost
    cost.seconds, cost.used = time.perf_counter() - begun, used() - before


def shared_out(count: int, work: Callable[[], object]) -> None:
    """So many calls, by `CLIENTS` threads."""
    failed: list[BaseException] = []

    def some() -> None:
        try:
            for _ in range(count // CLIENTS):
                work()
        except BaseException as exc:
            failed.append(exc)
            raise

    threads = [threading.Thread(target=some) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def of_redis(folder: Path) -> dict[str, float]:
    """Messages that wait, and messages that go through."""
    server = RedisServer(folder / "redis")
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:

            def used() -> float:
                figures = client.info("cpu")
                return float(figures["used_cpu_user"]) + float(figures["used_cpu_sys"])

            empty = client.info("memory")["used_memory"]
            with ExitStack() as stack:
                stage_of(server.url, folder, stack)
                waiting = client.info("memory")["used_memory"] - empty
            server.flush()
            with costing(used) as cost:
                ours(server.url, folder)
    finally:
        server.stop()
    return {
        "bytes_per_waiting_message": round(waiting / MESSAGES),
        "processor_us_per_message": round(cost.used / MESSAGES * 1e6),
    }


def of_postgres(server: PostgresServer) -> dict[str, float]:
    """Whole lives of jobs: submit, three claims, `WRITES` figures, three ends."""
    engine = open_engine(server.url(server.new_database(migrated=True)))
    try:
        empty = _size(engine)
        with costing(lambda: processor(server.process.pid)) as cost:
            shared_out(JOBS, lambda: _live(engine))
        return {
            "jobs_per_s": round(JOBS / cost.seconds),
            "processor_ms_per_job": round(cost.used / JOBS * 1e3, 2),
            "bytes_per_job": round((_size(engine) - empty) / JOBS),
        }
    finally:
        engine.dispose()


def _live(engine: sa.Engine) -> None:
    with write(engine) as connection:
        job_id = factories.make_job(connection, now=time.time()).id
    for n, stage in enumerate(STAGES):
        with write(engine) as connection:
            run = factories.start_run(connection, job_id, now=time.time())
        for step in range(WRITES // len(STAGES)):
            with write(engine) as connection:
                figures = Progress(float(step), step, 100, 1.0, 2.0)
                runs.write_progress(connection, run.job, figures, now=time.time())
        with write(engine) as connection:
            if stage is STAGES[-1]:
                factories.finish(connection, run, now=time.time())
            else:
                runs.advance(connection, run, to=STAGES[n + 1], fields={}, now=time.time())


def _size(engine: sa.Engine) -> int:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # What updates left behind is taken again by later ones; a full one shows what stays.
        connection.execute(sa.text("VACUUM FULL"))
        asked = sa.text("SELECT pg_database_size(current_database())")
        return int(connection.execute(asked).scalar_one())


def of_api(server: PostgresServer, folder: Path) -> dict[str, float]:
    """Submits, and looks at one job, over HTTP."""
    store = RedisServer(folder / "redis-api")
    store.start()
    try:
        environ = {
            "SLUICE_DATA_DIR": str(folder),
            "SLUICE_DATABASE_URL": server.url(server.new_database(migrated=True)),
            "SLUICE_REDIS_URL": store.url,
            "SLUICE_STORAGE_URL": f"file://{folder / 'files'}",
            "SLUICE_KEY_REQUESTS_PER_MINUTE": "0",
        }
        with served("sluice", folder, environ) as ((host, port), process):
            return _asked(f"http://{host}:{port}", lambda: processor(process.pid))
    finally:
        store.stop()


def _asked(url: str, used: Callable[[], float]) -> dict[str, float]:
    numbers = iter(range(10**9))
    with httpx.Client(base_url=url, timeout=30) as http:

        def submit() -> str:
            link = f"https://media.example/{next(numbers)}"
            answer = http.post("/v1/jobs", json={"url": link})
            answer.raise_for_status()
            return str(answer.json()["id"])

        job_id = submit()
        with costing(used) as submits:
            shared_out(SUBMITS, submit)
        links = [{"url": f"https://media.example/{next(numbers)}"} for _ in range(BATCH)]
        with costing(used) as batch:
            answer = http.post("/v1/jobs:batch", json={"jobs": links})
            answer.raise_for_status()
        if (made := answer.json()["accepted"]) != BATCH:
            raise RuntimeError(f"{made} of {BATCH} links were taken")
        with costing(used) as looks:
            shared_out(SUBMITS, lambda: http.get(f"/v1/jobs/{job_id}").raise_for_status())
    return {
        "submits_per_s": round(SUBMITS / submits.seconds),
        "processor_ms_per_submit": round(submits.used / SUBMITS * 1e3, 2),
        "batch_of_10000_s": round(batch.seconds, 2),
        "processor_ms_per_link_of_a_batch": round(batch.used / BATCH * 1e3, 2),
        "looks_per_s": round(SUBMITS / looks.seconds),
        "processor_ms_per_look": round(looks.used / SUBMITS * 1e3, 2),
    }


def capacity() -> dict[str, float]:
    """All three, one after the other."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, running_postgres() as server:
        folder = Path(name)
        parts = {
            "redis": of_redis(folder),
            "postgresql": of_postgres(server),
            "api": of_api(server, folder),
        }
    return {f"{part}_{n}": value for part, found in parts.items() for n, value in found.items()}


if __name__ == "__main__":
    sys.stdout.write("".join(f"{n:44}{v:12}\n" for n, v in capacity().items()))
