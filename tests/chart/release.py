"""As much of an API server as helm asks: objects of any kind, and a book of all writes in order.

Jobs and test pods end at once, well or as told; nothing runs.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.chart.render import CHART, NAMESPACE, RELEASE, helm

Object = dict[str, Any]

#: Group and version -> plural -> kind, of everything that the chart may write.
KINDS = {
    "v1": {
        "configmaps": "ConfigMap",
        "namespaces": "Namespace",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "pods": "Pod",
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "services": "Service",
    },
    "apps/v1": {"deployments": "Deployment"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "batch/v1": {"jobs": "Job"},
    "keda.sh/v1alpha1": {
        "scaledobjects": "ScaledObject",
        "triggerauthentications": "TriggerAuthentication",
    },
    "monitoring.coreos.com/v1": {
        "podmonitors": "PodMonitor",
        "prometheusrules": "PrometheusRule",
    },
    "networking.k8s.io/v1": {"ingresses": "Ingress", "networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding"},
}
_PATH = re.compile(
    r"^/apis?/(?P<version>v1|[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?$"
)


@dataclass
class Cluster:
    """The objects, and every write: (verb, kind, name)."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    #: Jobs of these names fail.
    failing: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    closed: threading.Event = field(default_factory=threading.Event)
    version: int = 0

    def kind(self, kind: str) -> dict[str, Object]:
        return {n: o for (k, n), o in self.objects.items() if k == kind}

    def wrote(self, *kinds: str) -> list[tuple[str, str, str]]:
        """What was written since the last call, of these kinds."""
        found = [write for write in self.writes if write[1] in kinds]
        self.writes.clear()
        return found

    def put(self, verb: str, kind: str, found: Object) -> Object:
        self.version += 1
        meta = found["metadata"]
        meta.setdefault("namespace", NAMESPACE)
        meta.setdefault("uid", str(uuid.uuid4()))
        meta["resourceVersion"] = str(self.version)
        for key, text in found.pop("stringData", {}).items():
            found.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        self.objects[kind, meta["name"]] = found
        self.writes.append((verb, kind, meta["name"]))
        self._end(kind, found)
        return found

    def _end(self, kind: str, found: Object) -> None:
        name = found["metadata"]["name"]
        if kind == "Job":
            ended = "Failed" if name in self.failing else "Complete"
            found["status"] = {"conditions": [{"type": ended, "status": "True"}], "succeeded": 1}
        if kind == "Pod":
            found["status"] = {"phase": "Succeeded"}
        if kind == "Deployment":
            found["spec"].setdefault("replicas", 1)


def merge(old: Any, new: Any) -> Any:
    """A strategic merge as far as it matters here: lists of named things are merged by name."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = {k: v for k, v in old.items() if new.get(k, "") is not None}
        for key, value in new.items():
            if value is not None and not key.startswith("$"):
                found[key] = merge(old.get(key), value)
        return found
    if isinstance(old, list) and isinstance(new, list) and _named(old) and _named(new):
        by_name = {item["name"]: item for item in old}
        for item in new:
            if item.get("$patch") == "delete":
                by_name.pop(item["name"], None)
            else:
                by_name[item["name"]] = merge(by_name.get(item["name"]), item)
        return list(by_name.values())
    return copy.deepcopy(new)


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)


#: Before everything that is protobuf. helm writes the book of its releases so, as Secrets.
_MAGIC = b"k8s\x00"


def secret(data: bytes) -> Object:
    """A Secret out of its protobuf form (k8s.io/api/core/v1, runtime.Unknown around it)."""
    body = _fields(_fields(data.removeprefix(_MAGIC))[2][0])
    meta = _fields(body[1][0])
    labels = [_fields(entry) for entry in meta.get(11, [])]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": meta[1][0].decode(),
            "labels": {entry[1][0].decode(): entry[2][0].decode() for entry in labels},
        },
        "data": {
            entry[1][0].decode(): base64.b64encode(entry[2][0]).decode()
            for entry in map(_fields, body.get(2, []))
        },
        "type": body[3][0].decode(),
    }


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """Fields of bytes of one message, by number; numbers are skipped."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, wire = divmod(varint(), 8)
        size = varint()
        if wire == 2:
            found.setdefault(number, []).append(data[at : at + size])
            at += size
    return found


def _openapi(path: str) -> Object:
    """What makes helm leave the check of fields to the server."""
    group, _, version = path.removeprefix("apis/").removeprefix("api/").rpartition("/")
    kinds = KINDS[f"{group}/{version}" if group else version].values()
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {
        f"/{kind}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "version": version,
                    "kind": kind,
                },
            }
        }
        for kind in kinds
    }
    return {"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": paths}


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:  # noqa: C901  # a class inside
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, status: int, body: Object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _refuse(self, status: int, reason: str) -> None:
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            self._answer(status, body | {"reason": reason, "code": status, "message": reason})

        def _body(self) -> Object:
            data = self._data
            found: Object = secret(data) if data.startswith(_MAGIC) else json.loads(data)
            return found

        def _do(self) -> None:
            self._data = self.rfile.read(int(self.headers["Content-Length"] or 0))
            parts = urlsplit(self.path)
            found = _PATH.match(parts.path)
            if found is None:
                self._discover(parts.path)
                return
            version = found["version"]
            kind = KINDS.get(version, {}).get(found["plural"])
            if kind is None:
                self._refuse(404, "NotFound")
                return
            query = parse_qs(parts.query)
            with cluster.lock:
                self._act(version, kind, found["name"], query)
            if "watch" in query:
                self._follow(kind)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815

        def _act(self, version: str, kind: str, name: str | None, query: Object) -> None:
            old = cluster.objects.get((kind, name or ""))
            if self.command == "POST":
                new = self._body()
                if (kind, new["metadata"]["name"]) in cluster.objects:
                    self._refuse(409, "AlreadyExists")
                else:
                    self._answer(201, cluster.put("create", kind, new))
            elif name is None:
                self._list(version, kind, query)
            elif self.command == "PATCH" and self.headers["Content-Type"].endswith(
                "apply-patch+yaml"
            ):
                verb = "update" if old else "create"
                self._answer(200, cluster.put(verb, kind, merge(old or {}, self._body())))
            elif old is None:
                self._refuse(404, "NotFound")
            elif self.command == "DELETE":
                del cluster.objects[kind, name]
                cluster.writes.append(("delete", kind, name))
                self._answer(200, old)
            elif self.command in {"PUT", "PATCH"}:
                new = self._body()
                new = merge(old, new) if self.command == "PATCH" else new
                self._answer(200, cluster.put("update", kind, new))
            else:
                self._answer(200, old)

        def _list(self, version: str, kind: str, query: Object) -> None:
            wanted = dict(
                part.split("=", 1)
                for part in query.get("labelSelector", [""])[0].split(",")
                if part
            )
            named = query.get("fieldSelector", [""])[0].partition("metadata.name=")[2]
            items = [
                found
                for name, found in cluster.kind(kind).items()
                if wanted.items() <= found["metadata"].get("labels", {}).items()
                and named in {"", name}
            ]
            if "watch" in query:
                self._watch(version, kind, items)
                return
            meta = {"resourceVersion": str(cluster.version)}
            body = {"kind": f"{kind}List", "apiVersion": version, "metadata": meta, "items": items}
            self._answer(200, body)

        def _watch(self, version: str, kind: str, items: list[Object]) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            for found in items:
                self._event("ADDED", found)
            meta = {
                "resourceVersion": str(cluster.version),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }
            self._event("BOOKMARK", {"kind": kind, "apiVersion": version, "metadata": meta})

        def _event(self, what: str, found: Object) -> None:
            self.wfile.write(json.dumps({"type": what, "object": found}).encode() + b"\n")

        def _follow(self, kind: str) -> None:
            """What changes from now on, until the server ends or the client has gone."""
            with suppress(OSError):
                known = dict(cluster.kind(kind))
                while not cluster.closed.wait(0.05):
                    with cluster.lock:
                        now = dict(cluster.kind(kind))
                    for name in known.keys() - now.keys():
                        self._event("DELETED", known[name])
                    for name, found in now.items():
                        if name not in known:
                            self._event("ADDED", found)
                        elif known[name] is not found:
                            self._event("MODIFIED", found)
                    known = now
                    self.wfile.flush()

        def _discover(self, path: str) -> None:
            groups = [version for version in KINDS if "/" in version]
            if path == "/version":
                self._answer(200, {"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
            elif path == "/api":
                self._answer(200, {"kind": "APIVersions", "versions": ["v1"]})
            elif path == "/apis":
                listed = [
                    {"name": v.split("/")[0], "versions": [one], "preferredVersion": one}
                    for v in groups
                    for one in [{"groupVersion": v, "version": v.split("/")[1]}]
                ]
                self._answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
            elif path == "/openapi/v3":
                paths = {
                    gv: {"serverRelativeURL": f"/openapi/v3/{gv}"}
                    for gv in (f"apis/{v}" if "/" in v else "api/v1" for v in KINDS)
                }
                self._answer(200, {"paths": paths})
            elif path.startswith("/openapi/v3/"):
                self._answer(200, _openapi(path.removeprefix("/openapi/v3/")))
            elif (version := path.removeprefix("/apis/").removeprefix("/api/")) in KINDS:
                verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
                resources = [
                    {
                        "name": plural,
                        "singularName": kind.lower(),
                        "namespaced": kind != "Namespace",
                        "kind": kind,
                        "verbs": verbs,
                    }
                    for plural, kind in KINDS[version].items()
                ]
                body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
                self._answer(200, body | {"resources": resources})
            else:
                self._refuse(404, "NotFound")

    return Handler


class Server:
    """The cluster, listening; and helm on it."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        self._folder = folder
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.cluster))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        cluster = {"server": f"http://127.0.0.1:{self._server.server_port}"}
        context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": context}],
            "current-context": "x",
        }
        (self._folder / "kubeconfig").write_text(json.dumps(config))
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def helm(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Of the release; `install` and `upgrade` get the chart."""
        chart = (
            [str(CHART), "--disable-openapi-validation"] if verb in {"install", "upgrade"} else []
        )
        first, rest = (verb, RELEASE), list(arguments)
        return subprocess.run(
            [str(helm()), *first, *chart, *rest, "-n", NAMESPACE],
            env={
                "KUBECONFIG": str(self._folder / "kubeconfig"),
                "HOME": str(self._folder),
                "PATH": "/usr/bin:/bin",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
