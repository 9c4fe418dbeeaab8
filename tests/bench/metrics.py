"""`/metrics` with a million jobs stored, beside a bare Flask route that answers the same text.

`python -m tests.bench.metrics [JOBS]` runs this alone.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from flask import Flask, Response

from sluice_api import installation
from sluice_api.app import EXTENSION, create_app
from sluice_core.adapters import settings
from sluice_core.adapters.db import job_counts, migrate, tallies
from sluice_core.adapters.db.engine import open_engine, write
from sluice_core.adapters.db.schema import jobs
from sluice_core.adapters.metrics import WorkerMetrics
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.tallies import of_run
from sluice_testing import factories
from sluice_testing.postgres import running_postgres
from sluice_testing.redis import RedisServer

ROUNDS = 30
JOBS = 1_000_000
#: Of them under way, each with an order or a run.
ACTIVE = 200
BATCH = 20_000
#: No-op messages per second of one worker, where nobody has measured them just now.
TYPICAL = 1_500.0


def figures(messages_per_s: float, *, count: int = JOBS) -> dict[str, float]:
    """Milliseconds of a page on both databases, and what counting adds to a no-op message.

    Args:
        messages_per_s: no-op messages of one worker, of the same run.
        count: jobs to store.

    """
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        redis = RedisServer(folder / "redis")
        redis.start()
        stack.callback(redis.stop)
        postgres = stack.enter_context(running_postgres())
        found: dict[str, float] = {"jobs": count}
        urls = {
            "sqlite": f"sqlite:///{folder / 'many.db'}",
            "postgresql": postgres.url(postgres.new_database()),
        }
        for kind, url in urls.items():
            _fill(url, count)
            page, bare, cpu = _page(url, redis.url, folder)
            found |= {
                f"{kind}_p95_ms": page,
                f"{kind}_bare_route_p95_ms": bare,
                f"{kind}_processor_ms": cpu,
            }
    cost = _counting()
    return found | {
        "count_us": round(cost * 1e6, 2),
        "share_of_a_message": round(cost * messages_per_s, 4),
    }


def _fill(url: str, count: int) -> None:
    engine = open_engine(url)
    migrate.upgrade(engine)
    with write(engine) as connection:
        for number in range(ACTIVE):
            factories.run_at(connection, STAGES[number % 3], now=time.time())
        _note_runs(connection)
    for start in range(0, count - ACTIVE, BATCH):
        with write(engine) as connection:
            connection.execute(sa.insert(jobs), [_ended(start + n) for n in range(BATCH)])
        with write(engine) as connection:
            while job_counts.fold(connection) == job_counts.BATCH:
                pass
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE"))
    engine.dispose()


def _note_runs(connection: sa.Connection) -> None:
    """Every stage with every outcome: as many series as there will ever be."""
    outcomes = ("ok", "failed", "retry", "handed_back", "lost", "canceled")
    for stage in STAGES:
        for outcome in outcomes:
            for seconds in (0.05, 0.3, 3, 40, 400, 4000):
                tallies.note(connection, of_run(stage.value, outcome, seconds))
    while tallies.fold(connection):
        pass


def _ended(number: int) -> dict[str, Any]:
    return {
        "id": f"00{number:024d}",
        "url": f"https://media.example/{number}",
        "preset": "best",
        "lane": "default",
        "options": {},
        "status": "SUCCESS" if number % 10 else "FAILED",
        "stage": Actor.TRANSCODE.value,
        "created_at": 1.7e9 + number,
        "updated_at": 1.7e9 + number,
        "finished_at": 1.7e9 + number,
    }


def _page(url: str, redis_url: str, folder: Path) -> tuple[float, float, float]:
    """95th percentile of a page, and of a bare route with the same text, in ms, in turns.

    The third is the processor's time for one page, in ms, which a busy machine changes less.
    """
    installation.FRESH = 0.0
    app = create_app(
        settings.load(
            {
                "SLUICE_DATA_DIR": str(folder),
                "SLUICE_DATABASE_URL": url,
                "SLUICE_REDIS_URL": redis_url,
            }
        )
    )
    client = app.test_client()
    text = client.get("/metrics").text
    bare_app = Flask("bare")
    bare_app.add_url_rule("/metrics", view_func=lambda: Response(text))
    bare_client = bare_app.test_client()
    pairs = [
        (_timed(lambda: client.get("/metrics")), _timed(lambda: bare_client.get("/metrics")))
        for _ in range(ROUNDS)
    ]
    began = time.process_time()
    for _ in range(ROUNDS):
        client.get("/metrics")
    cpu = (time.process_time() - began) / ROUNDS
    app.extensions[EXTENSION].close()
    page, bare = (statistics.quantiles(side, n=20)[-1] for side in zip(*pairs, strict=True))
    return round(page * 1000, 1), round(bare * 1000, 2), round(cpu * 1000, 1)


def _counting(calls: int = 200_000) -> float:
    """Processor seconds that one message's count takes."""
    metrics = WorkerMetrics()
    began = time.process_time()
    for _ in range(calls):
        metrics.message("parse.default", "ok")
    return (time.process_time() - began) / calls


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    sys.stdout.write(f"{figures(TYPICAL, count=asked)}\n")
