"""A pool of workers on a fake cluster, on real stores, with a real autoscaler."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis as redis_library
import sqlalchemy as sa
import yaml

from sluice_core.adapters import redis
from sluice_core.adapters.db import jobs, moves, outbox, runs
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.publisher import publish_now
from sluice_testing.factories import next_order, run_at
from sluice_testing.kubernetes import FakeCluster, PodTemplate, Rule
from sluice_testing.kubernetes.replicaset import environment
from sluice_testing.kubernetes.store import RefusedError
from sluice_testing.logs import logged
from sluice_testing.process import bound, free_port
from sluice_testing.waiting import until

POD = Path(__file__).with_name("pod.py")
POOL = "transcoder"
#: Grows at once, shrinks after three seconds, goes to zero after four.
QUICK: dict[str, Any] = {
    "minReplicas": 0,
    "maxReplicas": 6,
    "cooldownSeconds": 4,
    "scaleUp": {"policies": []},
    "scaleDown": {"stabilizationWindowSeconds": 3, "policies": []},
}

GOLDEN = Path(__file__).parents[1] / "chart" / "goldens" / "production.yaml"


def chart_role() -> list[Rule]:
    """What the chart lets the autoscaler do, to a Deployment of the tests' name."""
    objects = yaml.safe_load_all(GOLDEN.read_text("utf-8"))
    (role,) = [found for found in objects if found and found["kind"] == "Role"]
    return [
        Rule(
            rule["apiGroups"],
            rule["resources"],
            rule["verbs"],
            [POOL if name == f"sluice-{POOL}" else name for name in rule.get("resourceNames", ())],
        )
        for rule in role["rules"]
    ]


class Rig:
    """Stores, cluster and autoscaler of one test.

    Args:
        folder: for everything.
        database_url: of a migrated database.
        redis_url: of an empty Redis.
        slots: of one pod.
        grace: seconds that a pod's worker lets its runs finish.

    """

    def __init__(
        self, folder: Path, database_url: str, redis_url: str, *, slots: int = 1, grace: float = 0.5
    ) -> None:
        self.folder = folder
        self.engine = open_engine(database_url)
        self.signals: redis_library.Redis = redis.connect(redis_url)
        self._broker_client = redis.connect_broker(redis_url)
        self.broker = SluiceBroker(self._broker_client)
        self.cluster = FakeCluster(folder / "cluster")
        self.env = environment(
            SLUICE_DATA_DIR=str(folder / "data"),
            SLUICE_DATABASE_URL=database_url,
            SLUICE_REDIS_URL=redis_url,
            SLUICE_LOG_FORMAT="json",
            SLUICE_TRANSCODE_CONCURRENCY=str(slots),
            SLUICE_DRAIN_GRACE=str(grace),
        )
        self.slots = slots
        self.job_ids: list[str] = []
        self.autoscalers: list[subprocess.Popen[bytes]] = []
        self.others: list[subprocess.Popen[bytes]] = []
        self.metrics_port = 0

    def start(self, *, replicas: int = 0, pending: float = 0.0) -> None:
        self.cluster.start()
        self.cluster.deploy(
            POOL,
            PodTemplate([sys.executable, str(POD)], self.env, pending=pending),
            replicas=replicas,
        )

    def stop(self) -> None:
        for process in [*self.autoscalers, *self.others]:
            process.kill()
            process.wait(120)
        self.cluster.stop()
        self.engine.dispose()
        self.signals.close()
        self._broker_client.close()

    def autoscale(self, rules: dict[str, Any] | None = None, **env: str) -> subprocess.Popen[bytes]:
        """Start an autoscaler; QUICK rules unless others are given."""
        pools = self.folder / f"pools-{len(self.autoscalers)}.json"
        pools.write_text(
            json.dumps(
                {
                    POOL: {
                        "deployment": POOL,
                        "stage": "transcode",
                        "concurrency": self.slots,
                        "autoscaling": QUICK | (rules or {}),
                    }
                }
            )
        )
        self.metrics_port = free_port()
        settings = {
            "KUBECONFIG": str(self.cluster.kubeconfig()),
            "SLUICE_AUTOSCALER_POOLS": str(pools),
            "SLUICE_AUTOSCALER_PATIENCE": "5",
            "SLUICE_METRICS_PORT": str(self.metrics_port),
        }
        with self.log(len(self.autoscalers)).open("ab") as output:
            process = subprocess.Popen(
                bound([sys.executable, "-m", "sluice_autoscaler"]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env | settings | env,
            )
        self.autoscalers.append(process)
        return process

    def schedule(self) -> None:
        """Start a scheduler, which finds what got lost."""
        with (self.folder / "scheduler.log").open("ab") as output:
            self.others.append(
                subprocess.Popen(
                    bound([sys.executable, "-m", "sluice_scheduler"]),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                )
            )

    def log(self, number: int = 0) -> Path:
        return self.folder / f"autoscaler-{number}.log"

    def said(self, event: str, number: int = 0) -> list[dict[str, Any]]:
        """What an autoscaler has logged under a name."""
        return logged(self.log(number), event)

    # -- jobs --------------------------------------------------------------------------------------

    def submit(self, seconds: Sequence[float]) -> float:
        """One transcode each; returns the monotonic time at which they were published."""
        now = time.time()
        orders: list[OutboxRow] = []
        with write(self.engine) as connection:
            for length in seconds:
                url = f"https://media.example/{len(self.job_ids)}/{length}"
                run = run_at(connection, Actor.TRANSCODE, url=url, now=now)
                job, _ = runs.hand_back(connection, run, now=now)
                row = next_order(connection, job.id)
                orders.append(
                    OutboxRow(
                        row.id, row.job_id, Actor(row.actor), row.queue, row.epoch, due_at=0.0
                    )
                )
                self.job_ids.append(job.id)
        published = time.monotonic()
        publish_now(self.broker, orders, now=now)
        # As the scheduler's relay does a moment later.
        with write(self.engine) as connection:
            outbox.mark_published(connection, [order.id for order in orders], now=now)
        return published

    def hurry(self, job_id: str | None = None) -> None:
        """Let a job, or everything that runs and will run, end at once."""
        one = "" if job_id is None else f"-{self.job_ids.index(job_id)}"
        (self.folder / "data" / f"hurry{one}").touch()

    def drop_jobs(self) -> None:
        """Forget all jobs, as if they had been deleted."""
        with write(self.engine) as connection:
            for job_id in self.job_ids:
                moves.cancel(connection, job_id, now=time.time())
        self.job_ids.clear()

    def outcomes(self) -> Counter[str | None]:
        """How the runs of pods ended; None: they run."""
        found: Counter[str | None] = Counter()
        with read(self.engine) as connection:
            for job_id in self.job_ids:
                for attempt in jobs.attempts_of(connection, job_id):
                    # `factories` runs as worker-1.
                    if attempt.worker != "worker-1":
                        found[attempt.outcome] += 1
        return found

    def done(self) -> int:
        """Jobs that are SUCCESS."""
        with read(self.engine) as connection:
            found = jobs.get_many(connection, self.job_ids)
        return sum(job.status is Status.SUCCESS for job in found.values())

    def runs_of_pods(self) -> dict[str, list[str]]:
        """Pods that hold runs, and the jobs that these are of."""
        query = sa.text("SELECT worker, job_id FROM attempts WHERE ended_at IS NULL")
        found: dict[str, list[str]] = {}
        with read(self.engine) as connection:
            for worker, job_id in connection.execute(query):
                found.setdefault(worker.rsplit("-", 3)[0], []).append(job_id)
        return found

    def busy_pods(self) -> set[str]:
        """Pods that hold a run."""
        return set(self.runs_of_pods())

    def make_the_busy_newest(self) -> None:
        """The worst case for whoever picks pods: a ReplicaSet takes the newest first."""
        busy = self.busy_pods()
        for pod in self.cluster.pods():
            name = pod["metadata"]["name"]
            year = 2099 if name in busy else 2000
            with contextlib.suppress(RefusedError):  # it has just ended
                self.cluster.store.merge(
                    "pods", name, {"metadata": {"creationTimestamp": f"{year}-01-01T00:00:00Z"}}
                )

    def wait_done(self, count: int, timeout: float = 120.0) -> None:
        until(lambda: self.done() >= count, timeout=timeout, why=f"done: {self.done()}")

    def wait_pods(self, count: int, timeout: float = 120.0) -> None:
        """Until so many pods are there, all of them ready, and no other is ending."""
        until(
            lambda: len(self.cluster.ready_pods()) == len(self.cluster.pods(ending=True)) == count,
            timeout=timeout,
            why=f"{len(self.cluster.pods(ending=True))} pods, not {count}",
        )
