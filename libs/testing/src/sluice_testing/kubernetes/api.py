"""The HTTP side: paths, verbs, statuses."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sluice_testing.kubernetes.faults import Faults, Rule
from sluice_testing.kubernetes.store import Object, RefusedError, Store, selects

_GROUPS = {
    "/api/v1/": "",
    "/apis/apps/v1/": "apps",
    "/apis/coordination.k8s.io/v1/": "coordination.k8s.io",
}
_PATH = re.compile(
    r"^(?P<base>/api/v1/|/apis/[^/]+/v1/)namespaces/(?P<namespace>[^/]+)"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
_KINDS = {
    "deployments": ("apps/v1", "Deployment"),
    "pods": ("v1", "Pod"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}
#: MicroTime is parsed with its fraction, or not at all.
_MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_PATCHES = {"application/merge-patch+json", "application/strategic-merge-patch+json"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as authorization sees it."""

    verb: str
    group: str
    resource: str
    name: str
    at: float

    @property
    def base(self) -> str:
        return self.resource.partition("/")[0]


class Api:
    """Answers requests out of a store.

    Args:
        namespace: the only one.
        store: the objects.
        faults: what goes wrong.

    """

    def __init__(self, namespace: str, store: Store, faults: Faults) -> None:
        self.namespace = namespace
        self.store = store
        self.faults = faults
        #: None allows everything.
        self.rules: list[Rule] | None = None
        #: Bearer tokens that are good now; None: nobody is asked for one.
        self.tokens: set[str] | None = None
        #: Called before a pod's deletion is answered.
        self.on_delete: Callable[[str], None] = lambda _name: None
        #: Every request that was let in.
        self.requests: list[Request] = []

    def parse(self, method: str, path: str, query: dict[str, list[str]]) -> Request:
        """Which verb on what.

        Raises:
            RefusedError: 404, there is no such path.

        """
        match = _PATH.match(path)
        group = _GROUPS.get(match["base"]) if match else None
        if match is None or group is None or match["namespace"] != self.namespace:
            raise RefusedError(404, "NotFound", f"the server could not find {path}")
        name, sub = match["name"] or "", match["sub"]
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method)
        if verb is None:
            verb = "get" if name else "watch" if "watch" in query else "list"
        resource = match["resource"] + (f"/{sub}" if sub else "")
        return Request(verb, group, resource, name, time.monotonic())

    def authenticate(self, header: str) -> None:
        """Refuse whoever shows no good token in the header Authorization.

        Raises:
            RefusedError: 401.

        """
        kind, _, token = header.partition(" ")
        if self.tokens is not None and (kind.lower() != "bearer" or token not in self.tokens):
            raise RefusedError(401, "Unauthorized", "Unauthorized")

    def authorize(self, request: Request) -> None:
        """Refuse what no rule allows.

        Raises:
            RefusedError: 403.

        """
        if self.rules is None or any(
            rule.allows(request.group, request.resource, request.verb, request.name)
            for rule in self.rules
        ):
            return
        raise RefusedError(
            403,
            "Forbidden",
            f'{request.resource} "{request.name}" is forbidden: User "tester" cannot '
            f'{request.verb} resource "{request.resource}" in API group "{request.group}" '
            f'in the namespace "{self.namespace}"',
        )

    def answer(self, request: Request, query: dict[str, list[str]], body: Any) -> Object:
        """The object that is the answer.

        Raises:
            RefusedError: another status.

        """
        if request.resource == "deployments/scale":
            return self._scale(request, body)
        if request.base not in _KINDS or "/" in request.resource:
            raise RefusedError(404, "NotFound", f"no resource {request.resource}")
        if request.verb == "list":
            return self._list(request, {key: values[0] for key, values in query.items()})
        if request.verb == "get":
            return self._typed(request, self.store.get(request.resource, request.name))
        if request.resource == "leases" and request.verb in {"create", "update"}:
            return self._write_lease(request, body)
        if request.verb == "patch":
            return self._typed(request, self.store.merge(request.resource, request.name, body))
        if request.verb == "delete" and request.resource == "pods":
            found = self.store.get("pods", request.name)
            self.on_delete(request.name)
            return self._typed(request, found)
        raise RefusedError(405, "MethodNotAllowed", f"no {request.verb} on {request.resource}")

    def _typed(self, request: Request, item: Object) -> Object:
        version, kind = _KINDS[request.base]
        return {"apiVersion": version, "kind": kind, **item}

    def _list(self, request: Request, query: dict[str, str]) -> Object:
        items, version = self.store.list(request.resource)
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        chosen = [
            item
            for item in sorted(items, key=lambda item: str(item["metadata"]["name"]))
            if selects(labels, item["metadata"].get("labels", {}))
            and selects(fields, _selectable(item))
        ]
        metadata = {"resourceVersion": version}
        limit = int(query.get("limit", "0"))
        if limit and len(chosen) > limit:
            metadata["continue"] = "the-rest"
            del chosen[limit:]
        api_version, kind = _KINDS[request.base]
        return {
            "apiVersion": api_version,
            "kind": f"{kind}List",
            "metadata": metadata,
            "items": chosen,
        }

    def _scale(self, request: Request, body: Any) -> Object:
        name = request.name
        if request.verb == "update":
            self.store.check_version("deployments", name, body["metadata"].get("resourceVersion"))
            self.set_replicas(name, int(body.get("spec", {}).get("replicas", 0)))
        elif request.verb == "patch":
            self.set_replicas(name, int(body["spec"]["replicas"]))
        found = self.store.get("deployments", name)
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                key: found["metadata"][key] for key in ("name", "namespace", "resourceVersion")
            },
            "spec": {"replicas": found["spec"]["replicas"]},
            "status": {"replicas": found["status"].get("replicas", 0)},
        }

    def set_replicas(self, name: str, replicas: int) -> None:
        """As the scale subresource does.

        Raises:
            RefusedError: 404 or 422.

        """
        if replicas < 0:
            raise RefusedError(422, "Invalid", "spec.replicas: must be non-negative")
        generation = self.store.get("deployments", name)["metadata"]["generation"]
        self.store.merge(
            "deployments",
            name,
            {"spec": {"replicas": replicas}, "metadata": {"generation": generation + 1}},
        )

    def _write_lease(self, request: Request, body: Object) -> Object:
        for field in ("renewTime", "acquireTime"):
            value = body["spec"].get(field)
            if value is not None and not _MICRO_TIME.match(value):
                raise RefusedError(400, "BadRequest", f'parsing time "{value}" as MicroTime')
        if body["spec"].get("holderIdentity") == "":
            raise RefusedError(422, "Invalid", "spec.holderIdentity: must not be empty")
        body["metadata"].setdefault("namespace", self.namespace)
        write = self.store.create if request.verb == "create" else self.store.replace
        return self._typed(request, write("leases", body))


def _selectable(item: Object) -> dict[str, str]:
    """Fields of a pod that a field selector may name, as far as anybody here does."""
    return {
        "metadata.name": item["metadata"]["name"],
        "status.phase": item.get("status", {}).get("phase", ""),
    }


class Server(ThreadingHTTPServer):
    """One run of the API server; the state outlives it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, api: Api, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.api = api
        self.open: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 60.0

    def _serve(self) -> None:
        api = self.server.api
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        try:
            request = api.parse(self.command, url.path, query)
            if self._meet_fault(request):
                return
            api.authenticate(self.headers.get("Authorization") or "")
            api.authorize(request)
            api.requests.append(request)
            self._check_type(request)
            body = json.loads(raw) if raw else None
            self._send(201 if request.verb == "create" else 200, api.answer(request, query, body))
        except RefusedError as exc:
            self._refuse(exc)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # looked for by name

    def _check_type(self, request: Request) -> None:
        kind = (self.headers.get("Content-Type") or "").partition(";")[0]
        if request.verb == "patch" and kind not in _PATCHES:
            raise RefusedError(415, "UnsupportedMediaType", f"the body is {kind}")

    def _meet_fault(self, request: Request) -> bool:
        fault = self.server.api.faults.next(request.verb, request.resource)
        if fault is None:
            return False
        time.sleep(fault.delay)
        if fault.status == 200:  # noqa: PLR2004  # late, and right
            return False
        if not fault.status:
            self.close_connection = True
            return True
        self._refuse(
            RefusedError(fault.status, "Injected", f"fault on {request.verb} {request.resource}"),
            retry_after=fault.retry_after,
        )
        return True

    def _refuse(self, exc: RefusedError, *, retry_after: int | None = None) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(exc),
            "reason": exc.reason,
            "code": exc.code,
        }
        self._send(exc.code, status, retry_after=retry_after)

    def _send(self, code: int, item: Object, *, retry_after: int | None = None) -> None:
        body = json.dumps(item, separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if retry_after is not None:
                self.send_header("Retry-After", str(retry_after))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name
        """Quiet."""
