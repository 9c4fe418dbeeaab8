"""What one Redis, one PostgreSQL and one API process carry, in processor time and bytes.

`python -m tests.bench.capacity` runs this alone. Processor time is what a machine needs per unit of
work, so it holds on other machines too; rates of one run depend on who else was busy.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import redis
import sqlalchemy as sa

from sluice_core.adapters.db import runs
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.domain.job import Progress
from sluice_core.domain.lanes import STAGES
from sluice_scheduler.counts import add_up
from sluice_testing import factories
from sluice_testing.postgres import PostgresServer, running_postgres
from sluice_testing.redis import RedisServer
from tests.bench.sse import processor, served
from tests.bench.throughput import MESSAGES, ours, stage_of

#: Jobs that live their whole life in the database, and those that come in through the API.
JOBS = 2_000
SUBMITS = 3_000
#: In so many turns, each with a bare route and a bare insert beside it.
TURNS = 3
#: Links of one batch, the most there may be.
BATCH = 10_000
#: Writes of progress in one job: some seconds of download and of encoding.
WRITES = 9
#: At once.
CLIENTS = 4
#: Seconds until an answer is given up; the largest batch on a busy machine takes most.
PATIENCE = 120.0
#: Seconds between two sums of the changes of job counts, as in the scheduler.
ADD_UP = 1.0


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
        url = server.url(server.new_database(migrated=True))
        environ = {
            "SLUICE_DATA_DIR": str(folder),
            "SLUICE_DATABASE_URL": url,
            "SLUICE_REDIS_URL": store.url,
            "SLUICE_STORAGE_URL": f"file://{folder / 'files'}",
            "SLUICE_KEY_REQUESTS_PER_MINUTE": "0",
        }
        with (
            served("sluice", folder, environ) as (address, process),
            served("bare", folder, environ) as (bare_address, _),
            added_up(url),
        ):
            ours = Client(address)

            def used() -> float:
                return processor(process.pid)

            return _beside(server, ours, Client(bare_address), used) | _asked(ours, used)
    finally:
        store.stop()


@contextmanager
def added_up(url: str) -> Iterator[None]:
    """The scheduler's part in submits: without it each one adds up all that came before."""
    engine, done = open_engine(url), threading.Event()

    def work() -> None:
        while not done.wait(ADD_UP):
            add_up(engine)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        engine.dispose()


class Client:
    """One connection for each thread; plain, since it runs on the cores that are measured."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._own = threading.local()

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        """The decoded answer.

        Raises:
            RuntimeError: it is a refusal.

        """
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPConnection(*self._address, timeout=PATIENCE)
        self._own.connection.request(
            method, path, json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = self._own.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)


_numbers = iter(range(10**9))


def _link() -> dict[str, str]:
    """A request that nobody sent yet."""
    return {"url": f"https://media.example/{next(_numbers)}"}


def _beside(
    server: PostgresServer, ours: Client, bare: Client, used: Callable[[], float]
) -> dict[str, float]:
    """Submits, a bare Flask route and a bare insert, in turns: medians and ratios."""
    url = sa.make_url(server.url(server.new_database()))
    own = threading.local()

    def connect() -> psycopg.Connection:
        return psycopg.connect(host=str(url.query["host"]), user=url.username, dbname=url.database)

    with connect() as connection:
        connection.execute("CREATE TABLE bare (id serial PRIMARY KEY, url text NOT NULL)")

    def insert() -> None:
        if not hasattr(own, "connection"):
            own.connection = connect()
        own.connection.execute("INSERT INTO bare (url) VALUES (%s)", [_link()["url"]])
        own.connection.commit()

    sides: dict[str, Callable[[], object]] = {
        "submits": lambda: ours("POST", "/v1/jobs", _link()),
        "bare_route": lambda: bare("POST", "/v1/jobs", _link()),
        "bare_insert": insert,
    }
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, work in sides.items():
            with costing(used) as cost:
                shared_out(SUBMITS // TURNS, work)
            costs[name].append(cost)
    found = {
        f"{name}_per_s": SUBMITS / TURNS / statistics.median(cost.seconds for cost in each)
        for name, each in costs.items()
    }
    submitting = sum(cost.used for cost in costs["submits"])
    return {
        **{name: round(rate) for name, rate in found.items()},
        "processor_ms_per_submit": round(submitting / SUBMITS * 1e3, 2),
        "submits_to_bare_route": round(found["submits_per_s"] / found["bare_route_per_s"], 2),
        "submits_to_bare_insert": round(found["submits_per_s"] / found["bare_insert_per_s"], 2),
    }


def _asked(client: Client, used: Callable[[], float]) -> dict[str, float]:
    job_id = client("POST", "/v1/jobs", _link())["id"]
    links = [_link() for _ in range(BATCH)]
    with costing(used) as batch:
        made = client("POST", "/v1/jobs:batch", {"jobs": links})["accepted"]
    if made != BATCH:
        raise RuntimeError(f"{made} of {BATCH} links were taken")
    with costing(used) as looks:
        shared_out(SUBMITS, lambda: client("GET", f"/v1/jobs/{job_id}"))
    return {
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
