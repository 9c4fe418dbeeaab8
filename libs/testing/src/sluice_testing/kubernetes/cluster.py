"""The way in: a cluster that tests start, look at, and break."""

from __future__ import annotations

import json
import socket
import ssl
import time
from pathlib import Path
from threading import Thread

from sluice_testing.kubernetes.api import Api, Request, Server
from sluice_testing.kubernetes.faults import Fault, Faults, Rule
from sluice_testing.kubernetes.replicaset import COST, Ended, PodTemplate, ReplicaSets
from sluice_testing.kubernetes.store import Object, Store

__all__ = ["FakeCluster", "PodTemplate"]


class FakeCluster:
    """One namespace with an API server on loopback, Deployments, and pods that are processes.

    Args:
        folder: for kubeconfig and the pods' output.
        namespace: its name.

    """

    def __init__(self, folder: Path, namespace: str = "media") -> None:
        self.namespace = namespace
        self._folder = folder
        self.store = Store()
        self.faults = Faults()
        self.api = Api(namespace, self.store, self.faults)
        self.replicasets = ReplicaSets(self.store, namespace, folder)
        self.api.on_delete = self.replicasets.delete
        self._server: Server | None = None
        self._thread: Thread | None = None
        self.port = 0
        #: Set before the start: speak TLS by this.
        self.tls: ssl.SSLContext | None = None

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start_server()
        self.replicasets.start()

    def stop(self) -> None:
        self.stop_server()
        self.replicasets.stop()

    def start_server(self) -> None:
        """Begin to answer, on the port of last time."""
        self._server = Server(self.api, self.port, self.tls)
        self.port = int(self._server.server_address[1])
        self._thread = Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def stop_server(self) -> None:
        """Answer nobody, and close what is open; pods go on."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in list(server.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def kubeconfig(self) -> Path:
        """A file that leads to this cluster."""
        path = self._folder / "kubeconfig.json"
        named = {"name": "fake"}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "users": [{**named, "user": {}}],
                    "contexts": [
                        {
                            **named,
                            "context": {
                                "cluster": "fake",
                                "user": "fake",
                                "namespace": self.namespace,
                            },
                        }
                    ],
                }
            )
        )
        return path

    # -- objects -----------------------------------------------------------------------------------

    def deploy(self, name: str, template: PodTemplate, *, replicas: int = 0) -> None:
        """Add a Deployment."""
        self.store.create(
            "deployments",
            {
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "generation": 1,
                    "labels": {"app": name},
                },
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "worker"}]},
                    },
                },
                "status": {},
            },
        )
        self.replicasets.templates[name] = template

    def scale(self, name: str, replicas: int) -> None:
        """As a person does with `kubectl scale`."""
        self.api.set_replicas(name, replicas)

    def replicas(self, name: str) -> int:
        """How many are asked for."""
        return int(self.store.get("deployments", name)["spec"]["replicas"])

    def annotate(self, deployment: str, **annotations: str | None) -> None:
        """Annotations of a Deployment under `sluice.dev/`; `_` is read as `-`, None takes away."""
        named = {f"sluice.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
        self.store.merge("deployments", deployment, {"metadata": {"annotations": named}})

    def pods(self, *, ending: bool = False) -> list[Object]:
        """All pods, oldest first; those that end only when asked for."""
        found = self.store.list("pods")[0]
        return [pod for pod in found if ending or "deletionTimestamp" not in pod["metadata"]]

    def ready_pods(self) -> list[str]:
        """Names of pods that are ready."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods()
            if any(c["status"] == "True" for c in pod["status"].get("conditions", ()))
        ]

    def cost(self, pod: str) -> str | None:
        """A pod's deletion cost; None without one."""
        annotations = self.store.get("pods", pod)["metadata"].get("annotations", {})
        found: str | None = annotations.get(COST)
        return found

    @property
    def ended(self) -> list[Ended]:
        """Pods that are gone, in order."""
        return self.replicasets.ended

    def allow(self, *rules: Rule) -> None:
        """From now on only what these rules allow."""
        self.api.rules = list(rules)

    def fail(self, **how: object) -> Fault:
        """Break what fits; see `Fault`."""
        return self.faults.add(Fault(**how))  # type: ignore[arg-type]  # fields by name

    def requests(self, verb: str, resource: str, *, since: float = 0.0) -> list[Request]:
        """Requests that were let in, by monotonic time."""
        return [
            r
            for r in self.api.requests
            if (r.verb, r.resource) == (verb, resource) and r.at >= since
        ]

    def now(self) -> float:
        """The clock of `requests`."""
        return time.monotonic()
