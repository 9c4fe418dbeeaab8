"""Every process on its own, watched by a real Prometheus, with a real Alertmanager behind it.

The transcoder is a pool of a fake cluster, which a real autoscaler starts when there is work.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_testing.kubernetes import FakeCluster, PodTemplate
from sluice_testing.kubernetes.replicaset import environment
from sluice_testing.process import ServerProcess, free_port
from sluice_testing.prometheus import Alertmanager, Prometheus, answers
from sluice_testing.redis import RedisServer
from sluice_testing.site import SampleSite
from sluice_testing.system import TERMINAL
from sluice_testing.waiting import until

from .test_rules import FILES

SERVICES = ("api", "parser", "downloader", "scheduler")
PATIENCE = 120.0


@dataclass
class Watched:
    """The installation and those who watch it."""

    prometheus: Prometheus
    alertmanager: Alertmanager
    http: httpx.Client
    world: SampleSite
    #: Name of a process -> the port of its metrics.
    ports: Mapping[str, int]
    engine: sa.Engine

    def submit(self, path: str, **fields: Any) -> str:
        answer = self.http.post("/v1/jobs", json={"url": self.world.url(path), **fields})
        answer.raise_for_status()
        job_id: str = answer.json()["id"]
        return job_id

    def end(self, *job_ids: str) -> list[str]:
        """Their states, once all have ended."""

        def states() -> list[str]:
            return [self.http.get(f"/v1/jobs/{job_id}").json()["status"] for job_id in job_ids]

        until(lambda: set(states()) <= TERMINAL, timeout=PATIENCE)
        return states()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        world = stack.enter_context(SampleSite())
        started = _start(stack, folder, world, sqlite_template)
        yield started


def _start(stack: ExitStack, folder: Path, world: SampleSite, template: Path) -> Watched:
    redis = RedisServer(folder / "redis")
    redis.start()
    stack.callback(redis.stop)
    data = folder / "data"
    data.mkdir()
    (data / "sluice.db").write_bytes(template.read_bytes())
    ports = {name: free_port() for name in (*SERVICES, "transcoder", "autoscaler")}
    http_port = free_port()
    env = environment(
        SLUICE_DATA_DIR=str(data),
        SLUICE_REDIS_URL=redis.url,
        SLUICE_HTTP_PORT=str(http_port),
        SLUICE_EGRESS_ALLOW=world.address(),
        SLUICE_LOG_FORMAT="json",
        SLUICE_MAX_TRIES="2",
        SLUICE_DRAIN_GRACE="1",
    )
    cluster = _cluster(folder, {**env, "SLUICE_METRICS_PORT": str(ports["transcoder"])})
    stack.callback(cluster.stop)
    scaling = {
        "KUBECONFIG": str(cluster.kubeconfig()),
        "SLUICE_AUTOSCALER_POOLS": str(_pools(folder)),
    }
    processes = []
    for name in (*SERVICES, "autoscaler"):
        own = {"SLUICE_METRICS_PORT": str(ports[name]), **(scaling if name == "autoscaler" else {})}
        processes.append(_service(stack, folder, name, {**env, **own}, ports[name]))
    for process in processes:
        process.launch()
    for process in processes:
        process.await_ready()
    alertmanager = Alertmanager(folder / "alertmanager", _NOBODY)
    alertmanager.start()
    stack.callback(alertmanager.stop)
    prometheus = Prometheus(folder / "prometheus", _config(ports, alertmanager.port))
    prometheus.start()
    stack.callback(prometheus.stop)
    http = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{http_port}", timeout=30))
    engine = open_engine(f"sqlite:///{data / 'sluice.db'}")
    stack.callback(engine.dispose)
    return Watched(prometheus, alertmanager, http, world, ports, engine)


def _cluster(folder: Path, env: Mapping[str, str]) -> FakeCluster:
    cluster = FakeCluster(folder / "cluster")
    cluster.start()
    command = [sys.executable, "-m", "sluice_transcoder"]
    cluster.deploy("transcoder", PodTemplate(command, env), replicas=0)
    return cluster


def _pools(folder: Path) -> Path:
    file = folder / "pools.json"
    pool = {
        "deployment": "transcoder",
        "stage": "transcode",
        "concurrency": 2,
        # One pod at most: they would share the port of their metrics.
        "autoscaling": {"minReplicas": 0, "maxReplicas": 1, "cooldownSeconds": 600},
    }
    file.write_text(json.dumps({"transcoder": pool}))
    return file


def _service(
    stack: ExitStack, folder: Path, name: str, env: Mapping[str, str], port: int
) -> ServerProcess:
    process = ServerProcess(
        [sys.executable, "-m", f"sluice_{name}"],
        log=folder / f"{name}.log",
        ready=lambda: answers(f"http://127.0.0.1:{port}/livez"),
        env=env,
        patience=PATIENCE,
    )
    stack.callback(process.stop)
    return process


_NOBODY = {"route": {"receiver": "nobody", "group_wait": "1s"}, "receivers": [{"name": "nobody"}]}


def _config(ports: Mapping[str, int], alertmanager: int) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in FILES],
        "scrape_configs": [
            {
                "job_name": "sluice",
                "static_configs": [{"targets": [f"127.0.0.1:{p}" for p in ports.values()]}],
            }
        ],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
        },
    }


@contextmanager
def _stream(http: httpx.Client) -> Iterator[None]:
    """Somebody follows all jobs."""
    address = (http.base_url.host, http.base_url.port)
    with socket.create_connection(address, timeout=PATIENCE) as line:
        line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert line.recv(4096).startswith(b"HTTP/1.1 200")
        yield


@pytest.fixture(scope="module")
def worked(watched: Watched) -> Iterator[Watched]:
    """After successes, a retry, failures, a cancel and a scale-up, with a stream open."""
    until(lambda: watched.http.get("/readyz").is_success, timeout=PATIENCE)
    # Counters are there before they count, so that their first steps are seen.
    watched.prometheus.await_result("count(up == 1) >= 5", patience=PATIENCE)
    with _stream(watched.http):
        world = watched.world
        world.control("/clips/77/again.mp4", fail=500, times=1)
        good = watched.submit("/webm/vp9.webm", preset="480p")
        again = watched.submit("/clips/77/again.mp4")
        bad = watched.submit("/mp4/small.mp4?fail=404")
        given_up = watched.submit("/mp4/small.mp4?fail=500")
        dropped = watched.submit("/mp4/small.mp4?n=3", not_before="2999-01-01T00:00:00Z")
        watched.http.post(f"/v1/jobs/{dropped}/cancel").raise_for_status()
        assert watched.end(good, again, bad, given_up, dropped) == [
            "SUCCESS", "SUCCESS", "FAILED", "FAILED", "CANCELED",
        ]  # fmt: skip
        # More of the same once that was scraped: rates need two samples of what first appeared.
        worked_off(watched, 2)
        more = [watched.submit(f"/webm/vp9.webm?n={n}", preset="480p") for n in (4, 5)]
        more += [watched.submit(f"/mp4/small.mp4?n={n}&fail=500") for n in (6, 7)]
        watched.end(*more)
        worked_off(watched, 4)
        yield watched


def worked_off(watched: Watched, count: int) -> None:
    """Prometheus has seen so many successes and as many failures."""
    for status in ("SUCCESS", "FAILED"):
        watched.prometheus.await_result(
            f'sum(sluice_jobs_total{{status="{status}"}}) == {count}', patience=PATIENCE
        )
