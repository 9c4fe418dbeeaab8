"""What the API server says, and what it becomes here."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.config import incluster_config

from sluice_autoscaler import kube as module
from sluice_autoscaler.cluster import ClusterError, Fault
from sluice_autoscaler.kube import Kube
from sluice_core.domain.errors import ConfigError

W = "workers"


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (401, Fault.DENIED),
        (403, Fault.DENIED),
        (404, Fault.MISSING),
        (409, Fault.CONFLICT),
        (422, Fault.REFUSED),
        (429, Fault.THROTTLED),
        (500, Fault.SERVER_ERROR),
        (503, Fault.SERVER_ERROR),
        (504, Fault.TIMEOUT),
        (0, Fault.UNREACHABLE),
    ],
)
def test_every_fault_has_a_name(cluster: Any, kube: Kube, status: int, fault: Fault) -> None:
    cluster.workload(1)
    cluster.fail(status=status, retry_after=7 if status == 429 else None)
    with pytest.raises(ClusterError) as caught:
        kube.workload(W)
    assert caught.value.fault is fault
    assert caught.value.retry_after == (7.0 if status == 429 else None)
    # It was tried once: whoever asked decides about the next time.
    assert kube.workload(W).replicas == 1


def test_no_answer_in_time(cluster: Any, kube: Kube, quick_timeout: Callable[[], Any]) -> None:
    cluster.workload(1)
    quick_timeout()
    cluster.fail(status=200, delay=3.0)
    with pytest.raises(ClusterError) as caught:
        kube.workload(W)
    assert caught.value.fault is Fault.TIMEOUT


def test_nobody_there(cluster: Any, kube: Kube) -> None:
    cluster.workload(1)
    cluster.stop_server()
    with pytest.raises(ClusterError) as caught:
        kube.workload(W)
    assert caught.value.fault is Fault.UNREACHABLE
    cluster.start_server()
    assert kube.workload(W).replicas == 1


def test_an_answer_that_nobody_understands(cluster: Any, kube: Kube) -> None:
    cluster.workload(1)
    cluster.store.merge("deployments", W, {"spec": {"selector": None}})
    with pytest.raises(ClusterError) as caught:
        kube.workload(W)
    assert caught.value.fault is Fault.REFUSED


def test_a_missing_right_is_named(cluster: Any, kube: Kube) -> None:
    cluster.workload(1)
    cluster.allow()
    with pytest.raises(ClusterError, match=r'cannot get resource "deployments'):
        kube.workload(W)


def test_a_write_over_what_somebody_wrote_since_is_refused(cluster: Any, kube: Kube) -> None:
    cluster.workload(2)
    seen = kube.workload(W)
    cluster.scale(W, 5)
    with pytest.raises(ClusterError) as caught:
        kube.set_replicas(seen, 0)
    assert caught.value.fault is Fault.CONFLICT
    assert cluster.replicas(W) == 5
    kube.set_replicas(kube.workload(W), 3)
    assert cluster.replicas(W) == 3


def test_pods_are_those_of_the_selector_that_neither_ended_nor_are_about_to(
    cluster: Any, kube: Kube
) -> None:
    cluster.workload(3)
    cluster.pod("old", phase="Succeeded")
    cluster.store.merge("pods", "p0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    cluster.store.merge("pods", "p1", {"metadata": {"labels": {"app": "other"}}})
    (pod,) = kube.pods(kube.workload(W).selector)
    assert (pod.name, pod.ready, pod.alive, pod.cost, pod.mark) == ("p2", True, True, 0, "")


def test_pods_that_were_evicted_hide_none_that_live(
    cluster: Any, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come first in the alphabet, and are more than one list may hold."""
    monkeypatch.setattr(module, "MAX_PODS", 3)
    cluster.workload(2)
    for number in range(5):
        cluster.pod(f"evicted-{number}", phase="Failed", ready=False, alive=False)
    assert [pod.name for pod in kube.pods(kube.workload(W).selector)] == ["p0", "p1"]


def test_a_list_that_was_cut_off_is_no_list(
    cluster: Any, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PODS", 3)
    cluster.workload(4)
    with pytest.raises(ClusterError, match="more than 3 pods") as caught:
        kube.pods(kube.workload(W).selector)
    assert caught.value.fault is Fault.REFUSED


def test_annotations_come_and_go(cluster: Any, kube: Kube) -> None:
    cluster.workload(1)
    kube.annotate("p0", {"a": "1", "b": "2"})
    kube.annotate("p0", {"a": None})
    assert cluster.annotations("p0") == {"b": "2"}


@pytest.mark.parametrize(
    ("annotations", "paused", "held"),
    [
        ({}, None, False),
        ({"paused_replicas": "3"}, 3, False),
        ({"paused_replicas": "0"}, 0, False),
        ({"paused_replicas": "three"}, None, True),
        ({"paused_replicas": "-1"}, None, True),
        ({"hold": "true"}, None, True),
        ({"hold": "false"}, None, False),
    ],
)
def test_what_people_say_by_annotation(
    cluster: Any, kube: Kube, *, annotations: dict[str, str], paused: int | None, held: bool
) -> None:
    cluster.workload(1)
    cluster.annotate(W, **annotations)
    found = kube.workload(W)
    assert (found.paused, found.held) == (paused, held)


def test_a_rollout_shows(cluster: Any, kube: Kube) -> None:
    cluster.workload(2)
    assert not kube.workload(W).rolling
    cluster.store.merge("deployments", W, {"status": {"updatedReplicas": 1}})
    assert kube.workload(W).rolling
    cluster.settled()
    cluster.store.merge("deployments", W, {"metadata": {"generation": 9}})
    assert kube.workload(W).rolling


def test_times_of_a_lease_always_have_a_fraction(
    kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Whole(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime(2026, 1, 1, 12, 0, 0, 0, tz)

    monkeypatch.setattr(module.dt, "datetime", Whole)
    # The server refuses others, as the real one does.
    first = kube.write_lease("x", "me", duration=5, over=None)
    assert (first.holder, first.transitions) == ("me", 1)
    renewed = kube.write_lease("x", "me", duration=5, over=first)
    assert (renewed.acquired, renewed.transitions) == (first.acquired, 1)
    given_back = kube.write_lease("x", "", duration=1, over=renewed)
    assert given_back.holder == ""
    assert kube.write_lease("x", "other", duration=5, over=given_back).transitions == 3


@pytest.fixture
def inside(
    cluster: Any,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """As in a pod: an API server with TLS that asks for a token; returns the token's file."""
    cluster.stop_server()
    cluster.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cluster.tls.load_cert_chain(*certificate)
    cluster.start_server()
    token, namespace = tmp_path / "token", tmp_path / "namespace"
    token.write_text("first")
    namespace.write_text(f"{cluster.namespace}\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate[0]))
    monkeypatch.setattr(module, "_NAMESPACE_FILE", str(namespace))
    return token


def test_a_pod_shows_its_own_token_and_the_one_that_follows(
    cluster: Any, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet writes another one within the hour, and the first is good no more."""
    cluster.api.tokens = {"first"}
    kube = module.connect("")
    assert kube.namespace == cluster.namespace
    cluster.workload(1)
    assert kube.workload(W).replicas == 1

    cluster.api.tokens = {"second"}
    with pytest.raises(ClusterError) as caught:
        kube.workload(W)
    assert caught.value.fault is Fault.DENIED

    inside.write_text("second")
    later = dt.datetime.now() + dt.timedelta(minutes=2)  # noqa: DTZ005  # as the client counts

    class Later(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return later if tz is None else dt.datetime.now(tz)

    monkeypatch.setattr(
        incluster_config, "datetime", SimpleNamespace(datetime=Later, timedelta=dt.timedelta)
    )
    assert kube.workload(W).replicas == 1


def test_no_cluster_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="knows no Kubernetes"):
        module.connect("")
