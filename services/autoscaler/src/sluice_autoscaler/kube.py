"""The only module that knows the Kubernetes client."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from sluice_autoscaler.cluster import ClusterError, Fault, LeaseRecord, Pod, Workload
from sluice_core.domain.errors import ConfigError

#: Seconds for a connection, and for an answer.
TIMEOUT = (2.0, 5.0)
#: Pods that one pool may have.
MAX_PODS = 2_000
#: Evicted pods stay in the cluster as failed ones, by the thousand where nobody clears them away.
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
#: Where a pod finds its own namespace.
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

_FAULTS = {
    401: Fault.DENIED,
    403: Fault.DENIED,
    404: Fault.MISSING,
    409: Fault.CONFLICT,
    429: Fault.THROTTLED,
    504: Fault.TIMEOUT,
}
_SERVER_ERROR = 500
#: Characters kept of what the API server says.
_MAX_WORDS = 300

_T = TypeVar("_T")


class Kube:
    """A namespace of a cluster; every call raises `ClusterError` when it fails."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._apps = client.AppsV1Api(api)
        self._core = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)

    def workload(self, name: str) -> Workload:
        """One Deployment."""
        of = self._of(name)
        return _call(lambda: to_workload(self._apps.read_namespaced_deployment(**of)))

    def pods(self, selector: str) -> list[Pod]:
        """Pods that are neither ended nor about to end."""
        return _call(
            lambda: to_pods(
                self._core.list_namespaced_pod(
                    self.namespace,
                    label_selector=selector,
                    field_selector=NOT_ENDED,
                    limit=MAX_PODS,
                    _request_timeout=TIMEOUT,
                )
            )
        )

    def set_replicas(self, workload: Workload, replicas: int) -> None:
        """Through the scale subresource; refused when somebody wrote the Deployment since."""
        body = client.V1Scale(
            metadata=client.V1ObjectMeta(
                name=workload.name,
                namespace=self.namespace,
                resource_version=workload.version,
            ),
            spec=client.V1ScaleSpec(replicas=replicas),
        )
        of = self._of(workload.name)
        _call(lambda: self._apps.replace_namespaced_deployment_scale(body=body, **of))

    def annotate(self, pod: str, annotations: dict[str, str | None]) -> None:
        """Set annotations of a pod; None takes one away."""
        body = {"metadata": {"annotations": annotations}}
        _call(lambda: self._core.patch_namespaced_pod(body=body, **self._of(pod)))

    def lease(self, name: str) -> LeaseRecord | None:
        """A Lease; None when there is none yet."""
        try:
            return _call(lambda: to_lease(self._leases.read_namespaced_lease(**self._of(name))))
        except ClusterError as exc:
            if exc.fault is Fault.MISSING:
                return None
            raise

    def write_lease(
        self, name: str, holder: str, *, duration: int, over: LeaseRecord | None
    ) -> LeaseRecord:
        """Create a Lease, or write `over` the one that was read; refused when it has changed.

        An empty `holder` gives it back.
        """
        now = _micro(dt.datetime.now(dt.UTC))
        changes = over is None or over.holder != holder
        began = now if over is None or changes or over.acquired is None else _micro(over.acquired)
        spec = client.V1LeaseSpec(
            # Nobody is said by leaving it out: an empty name is refused.
            holder_identity=holder or None,
            lease_duration_seconds=duration,
            renew_time=now,
            acquire_time=began,
            lease_transitions=(over.transitions if over else 0) + int(changes),
        )
        metadata = client.V1ObjectMeta(
            name=name, namespace=self.namespace, resource_version=over.version if over else None
        )
        body = client.V1Lease(metadata=metadata, spec=spec)
        if over is not None:
            of = self._of(name)
            return _call(lambda: to_lease(self._leases.replace_namespaced_lease(body=body, **of)))
        return _call(
            lambda: to_lease(
                self._leases.create_namespaced_lease(self.namespace, body, _request_timeout=TIMEOUT)
            )
        )

    def _of(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, "_request_timeout": TIMEOUT}


def connect(namespace: str) -> Kube:
    """From inside a pod, or by the kubeconfig of whoever starts it.

    Args:
        namespace: empty: the pod's own, or that of the kubeconfig's context.

    Raises:
        ConfigError: neither is there.

    """
    settings = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            own = _own_namespace()
        except ConfigException:
            config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            _, context = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
            own = context["context"].get("namespace", "default")
    except (ConfigException, OSError) as exc:
        raise ConfigError(
            f"The autoscaler knows no Kubernetes: it runs in no pod, and there is no kubeconfig "
            f"({exc})."
        ) from exc
    # What failed is tried again by the next turn, which looks first whether it is still wanted.
    settings.retries = False
    return Kube(client.ApiClient(settings), namespace or own)


def _own_namespace() -> str:
    with open(_NAMESPACE_FILE, encoding="utf-8") as file:  # noqa: PTH123  # as the client does
        return file.read().strip()


def _micro(moment: dt.datetime) -> dt.datetime:
    # Kubernetes refuses a time without a fraction, which is how a whole second would be written.
    return moment if moment.microsecond else moment.replace(microsecond=1)


def _call(ask: Callable[[], _T]) -> _T:
    with _translated():
        return ask()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ApiException as exc:
        raise _of_status(exc) from exc
    except urllib3.exceptions.NewConnectionError as exc:
        # Counted among time-outs by its library.
        raise ClusterError(Fault.UNREACHABLE, f"no connection: {exc}") from exc
    except urllib3.exceptions.TimeoutError as exc:
        raise ClusterError(Fault.TIMEOUT, f"no answer within {TIMEOUT[1]:g} s") from exc
    except (urllib3.exceptions.HTTPError, OSError) as exc:
        raise ClusterError(Fault.UNREACHABLE, f"no connection: {exc}") from exc
    except (ValueError, TypeError, AttributeError) as exc:
        raise ClusterError(Fault.REFUSED, f"an answer that is not understood: {exc}") from exc


def _of_status(exc: ApiException) -> ClusterError:
    status = int(exc.status or 0)
    fault = _FAULTS.get(status)
    if fault is None:
        fault = Fault.SERVER_ERROR if status >= _SERVER_ERROR else Fault.REFUSED
    words = f"{status} {exc.reason}: {_message(exc)}"
    return ClusterError(fault, words, retry_after=_retry_after(exc))


def _message(exc: ApiException) -> str:
    """The sentence of a Status object, which names the object and the missing right."""
    text = str(exc.body or "")
    try:
        text = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text[:_MAX_WORDS]
    return str(text)[:_MAX_WORDS]


def _retry_after(exc: ApiException) -> float | None:
    text = str((exc.headers or {}).get("Retry-After", ""))
    return float(text) if text.isdigit() else None


# The client's types let every field be missing. What must be there and is not raises
# AttributeError, which `_call` makes a `ClusterError`.


def to_workload(found: Any) -> Workload:
    """A Deployment as read."""
    labels = found.spec.selector.match_labels or {}
    status = found.status or client.V1DeploymentStatus()
    unseen = (status.observed_generation or 0) < (found.metadata.generation or 0)
    return Workload(
        name=found.metadata.name,
        version=found.metadata.resource_version,
        replicas=found.spec.replicas or 0,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        rolling=unseen or (status.replicas or 0) > (status.updated_replicas or 0),
        annotations=dict(found.metadata.annotations or {}),
    )


def to_pods(found: Any) -> list[Pod]:
    """Of a list of pods as read those that are not about to end."""
    if found.metadata._continue:  # noqa: SLF001  # the client's name for `continue`
        # Half of the pods is no picture of a pool.
        raise ClusterError(Fault.REFUSED, f"more than {MAX_PODS} pods")
    return [to_pod(pod) for pod in found.items if pod.metadata.deletion_timestamp is None]


def to_pod(found: Any) -> Pod:
    """A pod as read."""
    status = found.status
    ready = next((c for c in status.conditions or () if c.type == "Ready"), None)
    is_ready = ready is not None and ready.status == "True"
    containers = status.container_statuses or ()
    return Pod(
        name=found.metadata.name,
        assigned=bool(found.spec.node_name),
        phase=status.phase or "Unknown",
        ready=is_ready,
        alive=any(c.state is not None and c.state.running is not None for c in containers),
        created=_unix(found.metadata.creation_timestamp),
        ready_at=_unix(ready.last_transition_time) if ready is not None and is_ready else 0.0,
        restarts=sum(c.restart_count for c in containers),
        annotations=dict(found.metadata.annotations or {}),
    )


def _unix(moment: dt.datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0


def to_lease(found: Any) -> LeaseRecord:
    """A Lease as read."""
    spec = found.spec
    return LeaseRecord(
        version=found.metadata.resource_version,
        holder=spec.holder_identity or "",
        transitions=spec.lease_transitions or 0,
        renewed=spec.renew_time.isoformat() if spec.renew_time else "",
        duration=spec.lease_duration_seconds or 0,
        acquired=spec.acquire_time,
    )
