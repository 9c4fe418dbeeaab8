from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from sluice_autoscaler.kube import Kube
from sluice_testing.kubernetes import FakeCluster, PodTemplate
from sluice_testing.kubernetes.store import Object, timestamp

DEPLOYMENT = "workers"


class Cluster(FakeCluster):
    """An API server whose objects change by hand only: no controller acts on them."""

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start_server()

    def workload(self, replicas: int) -> None:
        """A Deployment with as many ready pods."""
        self.deploy(DEPLOYMENT, PodTemplate([], {}), replicas=replicas)
        for number in range(replicas):
            self.pod(f"p{number}", age=1000.0 - number)
        self.settled()

    def settled(self) -> None:
        """What the Deployment's controller says once nothing is left to do."""
        found = self.store.get("deployments", DEPLOYMENT)
        count = len(self.pods())
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": count,
            "updatedReplicas": count,
        }
        self.store.merge("deployments", DEPLOYMENT, {"status": status})

    def pod(
        self,
        name: str,
        *,
        ready: bool = True,
        alive: bool = True,
        age: float = 0.0,
        cost: str | None = None,
        phase: str = "Running",
    ) -> None:
        created = f"2026-01-01T{int(9 - age // 3600):02d}:00:{int(59 - age % 60):02d}Z"
        running: Object = {"running": {"startedAt": created}}
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {}
        self.store.create(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": {"app": DEPLOYMENT},
                    "annotations": annotations,
                    "creationTimestamp": created,
                },
                "spec": {"containers": [{"name": "worker"}], "nodeName": "n"},
                "status": {
                    "phase": phase,
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": str(ready),
                            "lastTransitionTime": created if ready else timestamp(),
                        }
                    ],
                    "containerStatuses": [
                        {
                            "name": "worker",
                            "image": "w",
                            "imageID": "w",
                            "ready": ready,
                            "restartCount": 0,
                            "state": running if alive else {"waiting": {"reason": "Creating"}},
                        }
                    ],
                },
            },
        )

    def annotations(self, pod: str) -> dict[str, str]:
        found: dict[str, str] = self.store.get("pods", pod)["metadata"].get("annotations", {})
        return found

    def marked(self) -> list[str]:
        names = [pod["metadata"]["name"] for pod in self.pods()]
        return [name for name in names if "sluice.dev/standby" in self.annotations(name)]

    def kube(self) -> Kube:
        settings = client.Configuration()
        config.load_kube_config(str(self.kubeconfig()), client_configuration=settings)
        settings.retries = False
        return Kube(client.ApiClient(settings), self.namespace)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def kube(cluster: Cluster) -> Kube:
    return cluster.kube()


@pytest.fixture
def quick_timeout(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    return lambda: monkeypatch.setattr("sluice_autoscaler.kube.TIMEOUT", (0.5, 0.5))
