"""Starts and stops pods until there are as many as asked for, in the order of the real one."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice_testing.kubernetes.store import Object, RefusedError, Store, timestamp
from sluice_testing.process import bound

#: Seconds between two looks.
TICK = 0.05


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What a pod of a Deployment is."""

    command: Sequence[str]
    #: Its whole environment; `POD_NAME_VARIABLE` is added.
    env: Mapping[str, str]
    #: Name of the variable that tells a pod its name.
    name_variable: str = "SLUICE_POD_NAME"
    #: Words in its output that make it ready.
    ready_words: str = "worker_ready"
    #: Seconds from SIGTERM to SIGKILL.
    grace: float = 30.0
    #: Seconds that it is Pending.
    pending: float = 0.0


@dataclass(slots=True)
class _Running:
    template: PodTemplate
    log: Path
    starts_at: float
    process: subprocess.Popen[bytes] | None = None
    kill_at: float | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pod went."""

    name: str
    exit_code: int
    #: The grace was not enough.
    killed: bool
    #: Its deletion cost when it was chosen; None: none was set.
    cost: str | None


@dataclass(slots=True)
class ReplicaSets:
    """The controllers and the kubelet of the namespace, in one thread."""

    store: Store
    namespace: str
    folder: Path
    templates: dict[str, PodTemplate] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    _pods: dict[str, _Running] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="replicasets", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and every pod at once."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(120)
        for pod in self._pods.values():
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait(120)

    def delete(self, name: str) -> None:
        """A pod is to end: by its ReplicaSet, a person, or a drained node."""
        running = self._pods.get(name)
        if running is None or running.kill_at is not None:
            return
        self.store.merge("pods", name, {"metadata": {"deletionTimestamp": timestamp()}})
        running.kill_at = time.monotonic() + running.template.grace
        if running.process is not None and running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)

    def pid(self, name: str) -> int:
        """Of a pod's process."""
        process = self._pods[name].process
        assert process is not None, "not started"  # noqa: S101  # a test's own mistake
        return process.pid

    def output(self, name: str) -> str:
        """What a pod has said."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def _run(self) -> None:
        while not self._stopping.wait(TICK):
            for name in list(self.templates):
                self._reconcile(name)
            for name in list(self._pods):
                self._look_after(name)

    # -- ReplicaSet --------------------------------------------------------------------------------

    def _reconcile(self, name: str) -> None:
        try:
            deployment = self.store.get("deployments", name)
        except RefusedError:
            return
        mine = [
            pod
            for pod in self.store.list("pods")[0]
            if pod["metadata"]["labels"].get("deployment") == name
        ]
        active = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]
        wanted = deployment["spec"]["replicas"]
        for _ in range(wanted - len(active)):
            self._create(name, deployment)
        for pod in sorted(active, key=removal_rank)[: max(0, len(active) - wanted)]:
            self.delete(pod["metadata"]["name"])
        self._tell_status(name, deployment, active)

    def _create(self, name: str, deployment: Object) -> None:
        pod_name = f"{name}-{next(self._numbers):04d}"
        labels = {**deployment["spec"]["selector"]["matchLabels"], "deployment": name}
        self.store.create(
            "pods",
            {
                "metadata": {
                    "name": pod_name,
                    "namespace": self.namespace,
                    "labels": labels,
                    "creationTimestamp": timestamp(micro=True),
                },
                "spec": {"containers": [{"name": "worker"}]},
                "status": {"phase": "Pending"},
            },
        )
        template = self.templates[name]
        self._pods[pod_name] = _Running(
            template, self.folder / f"{pod_name}.log", time.monotonic() + template.pending
        )

    def _tell_status(self, name: str, deployment: Object, active: list[Object]) -> None:
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(active),
            "updatedReplicas": len(active),
            "readyReplicas": sum(_is_ready(pod) for pod in active),
        }
        if deployment["status"] != {**deployment["status"], **status}:
            self.store.merge("deployments", name, {"status": status})

    # -- kubelet -----------------------------------------------------------------------------------

    def _look_after(self, name: str) -> None:
        pod = self._pods[name]
        if pod.process is None:
            if pod.kill_at is not None:
                self._forget(name, exit_code=0, killed=False)
            elif time.monotonic() >= pod.starts_at:
                self._begin(name, pod)
            return
        code = pod.process.poll()
        if code is None:
            late = pod.kill_at is not None and time.monotonic() > pod.kill_at
            if late:
                pod.process.kill()
                self._forget(name, exit_code=pod.process.wait(120), killed=True)
            else:
                self._tell_ready(name, pod)
        elif pod.kill_at is not None:
            self._forget(name, exit_code=code, killed=False)
        else:
            pod.restarts += 1
            pod.process = None
            pod.starts_at = time.monotonic() + 1.0
            self.store.merge("pods", name, {"status": _status(pod, phase="Running", ready=False)})

    def _begin(self, name: str, pod: _Running) -> None:
        with pod.log.open("ab") as output:
            pod.process = subprocess.Popen(  # noqa: S603  # the test's own program
                bound(pod.template.command, end_signal=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**pod.template.env, pod.template.name_variable: name},
                start_new_session=True,
            )
        self.store.merge(
            "pods",
            name,
            {
                "spec": {"nodeName": "node-1"},
                "status": _status(pod, phase="Running", ready=False),
            },
        )

    def _tell_ready(self, name: str, pod: _Running) -> None:
        if _is_ready(self.store.get("pods", name)):
            return
        said = pod.log.read_bytes()
        if said.count(pod.template.ready_words.encode()) > pod.restarts:
            self.store.merge("pods", name, {"status": _status(pod, phase="Running", ready=True)})

    def _forget(self, name: str, *, exit_code: int, killed: bool) -> None:
        cost = self.store.get("pods", name)["metadata"].get("annotations", {}).get(COST)
        self.ended.append(Ended(name, exit_code, killed, cost))
        self.store.remove("pods", name)
        del self._pods[name]


COST = "controller.kubernetes.io/pod-deletion-cost"


def removal_rank(pod: Object) -> tuple[Any, ...]:
    """Pending, not ready, cheaper, newer: the lowest goes first."""
    metadata, status = pod["metadata"], pod["status"]
    return (
        "nodeName" in pod["spec"],
        {"Pending": 0, "Unknown": 1, "Running": 2}[status["phase"]],
        _is_ready(pod),
        int(metadata.get("annotations", {}).get(COST, "0")),
        _newest_first(metadata["creationTimestamp"]),
    )


def _newest_first(moment: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in moment)


def _is_ready(pod: Object) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ())
    )


def _status(pod: _Running, *, phase: str, ready: bool) -> Object:
    running = pod.process is not None
    state: Object = (
        {"running": {"startedAt": timestamp()}, "waiting": None}
        if running
        else {"waiting": {"reason": "CrashLoopBackOff"}, "running": None}
    )
    return {
        "phase": phase,
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "lastTransitionTime": timestamp(),
            }
        ],
        "containerStatuses": [
            {
                "name": "worker",
                "image": "worker",
                "imageID": "worker",
                "ready": ready,
                "restartCount": pod.restarts,
                "state": {key: value for key, value in state.items() if value is not None},
            }
        ],
    }


def environment(**values: str) -> dict[str, str]:
    """The tests' own environment without Sluice's settings, and these instead."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | values
