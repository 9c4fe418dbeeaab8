"""The chart's two ways to scale, with what it wrote for them: rights, pools, addresses, keys."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from contextlib import ExitStack

import httpx
import pytest

from sluice_core.adapters.db import access
from sluice_core.adapters.db.engine import open_engine, write
from sluice_testing.kubernetes import FakeCluster, PodTemplate, Rule
from sluice_testing.process import bound, free_port
from sluice_testing.waiting import until
from tests.chart.objects import containers, of_kind
from tests.chart.objects import env as env_of
from tests.chart.render import NAMESPACE, render

#: Takes the place of a worker: lives until it is told to end.
IDLE = [sys.executable, "-c", "import signal; print('worker_ready', flush=True); signal.pause()"]


def rules_of(role):
    return [
        Rule(r["apiGroups"], r["resources"], r["verbs"], r.get("resourceNames", ()))
        for r in role["rules"]
    ]


def plain_env(objects, name):
    """A container's variables that come from no Secret."""
    [container] = [c for n, _, c in containers(objects) if n == name]
    found = dict(of_kind(objects, "ConfigMap")["sluice"]["data"])
    return found | {k: v for k, v in env_of(container).items() if isinstance(v, str)}


@pytest.fixture
def started(tmp_path):
    """Starts a process; it ends with the test."""
    with ExitStack() as stack:

        def start(module, **env):
            log = tmp_path / f"{module}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    bound([sys.executable, "-m", module]),
                    env={"PATH": os.environ["PATH"], **env},
                    stdout=output,
                    stderr=output,
                )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return log

        yield start


@pytest.fixture
def stores(database_url, redis_url, tmp_path):
    return {
        "SLUICE_DATABASE_URL": database_url,
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_STORAGE_URL": f"file://{tmp_path}/storage",
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_autoscaler_has_the_rights_and_pools_that_it_needs(tmp_path, stores, started):
    objects = render("minimal")
    cluster = FakeCluster(tmp_path / "cluster", NAMESPACE)
    cluster.allow(*rules_of(of_kind(objects, "Role")["sluice-autoscaler"]))
    pools = tmp_path / "pools.json"
    pools.write_text(of_kind(objects, "ConfigMap")["sluice-autoscaler"]["data"]["pools.json"])
    cluster.start()
    try:
        for pool in ("parser", "downloader", "transcoder"):
            cluster.deploy(f"sluice-{pool}", PodTemplate(IDLE, {}), replicas=0)
        env = plain_env(objects, "sluice-autoscaler") | stores
        port = free_port()
        log = started(
            "sluice_autoscaler",
            **env
            | {
                "KUBECONFIG": str(cluster.kubeconfig()),
                "SLUICE_POD_NAME": "sluice-autoscaler-1",
                "SLUICE_AUTOSCALER_POOLS": str(pools),
                "SLUICE_METRICS_PORT": str(port),
            },
        )
        # The parser's pool has one at least.
        until(lambda: cluster.replicas("sluice-parser") == 1, why=log.read_text)
        until(lambda: cluster.requests("list", "pods"), why="no pod was looked at")
        assert cluster.requests("create", "leases")
        assert {cluster.replicas(f"sluice-{p}") for p in ("downloader", "transcoder")} == {0}
        assert "denied" not in log.read_text()
        assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=10).is_success
    finally:
        cluster.stop()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_keda_gets_a_figure_at_the_address_with_the_key(stores, own_redis, started):
    objects = render("keda")
    [auth] = of_kind(objects, "TriggerAuthentication").values()
    [token] = auth["spec"]["secretTargetRef"]
    assert token["parameter"] == "token"
    secret = of_kind(objects, "Secret")[token["name"]]["data"][token["key"]]
    key = base64.b64decode(secret).decode()
    engine = open_engine(stores["SLUICE_DATABASE_URL"])
    with write(engine) as connection:
        # As the migration does with SLUICE_BOOTSTRAP_KEY.
        access.ensure(connection, text=key, name="bootstrap", scopes=tuple(access.Scope), now=1.0)
    engine.dispose()
    port = free_port()
    env = plain_env(objects, "sluice-api") | stores
    started(
        "sluice_api",
        **env
        | {
            "SLUICE_REDIS_URL": own_redis.url,
            "SLUICE_HTTP_PORT": str(port),
            "SLUICE_METRICS_PORT": str(free_port()),
        },
    )

    def ask(trigger, **headers):
        url = trigger["metadata"]["url"].replace(
            f"http://sluice-api.{NAMESPACE}.svc:8080", f"http://127.0.0.1:{port}"
        )
        try:
            return httpx.get(url, headers=headers, timeout=10)
        except httpx.TransportError:
            return None

    triggers = [o["spec"]["triggers"][0] for o in of_kind(objects, "ScaledObject").values()]
    until(lambda: ask(triggers[0]), why="the API does not answer")
    for trigger in triggers:
        assert trigger["metadata"]["authMode"] == "bearer"
        answer = ask(trigger, Authorization=f"Bearer {key}")
        assert answer.json()[trigger["metadata"]["valueLocation"]] == 0
        assert ask(trigger).status_code == 401
    # What KEDA can't read is an error to it and no zero: the pool stays as it is.
    own_redis.kill9()
    assert ask(triggers[0], Authorization=f"Bearer {key}").status_code == 503
