"""Objects with versions: what an API server keeps."""

from __future__ import annotations

import copy
import datetime as dt
import threading
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(message)


def timestamp(*, micro: bool = False) -> str:
    """Now, as Kubernetes writes it."""
    now = dt.datetime.now(dt.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Objects by resource and name; everything that goes in or out is a copy."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[Key, Object] = {}
        self._version = 100

    def get(self, resource: str, name: str) -> Object:
        """One object.

        Raises:
            RefusedError: 404.

        """
        with self._lock:
            found = self._objects.get((resource, name))
            if found is None:
                raise RefusedError(404, "NotFound", f'{resource} "{name}" not found')
            return copy.deepcopy(found)

    def list(self, resource: str) -> tuple[list[Object], str]:
        """All objects of a resource, and the version of the list."""
        with self._lock:
            found = [o for (kind, _), o in self._objects.items() if kind == resource]
            return copy.deepcopy(found), str(self._version)

    def create(self, resource: str, item: Object) -> Object:
        """Add an object.

        Raises:
            RefusedError: 409, there is one of this name.

        """
        with self._lock:
            name = item["metadata"]["name"]
            if (resource, name) in self._objects:
                raise RefusedError(409, "AlreadyExists", f'{resource} "{name}" already exists')
            item = copy.deepcopy(item)
            item["metadata"].setdefault("creationTimestamp", timestamp())
            item["metadata"]["uid"] = f"uid-{resource}-{name}-{self._version}"
            return self._put(resource, item)

    def replace(self, resource: str, item: Object) -> Object:
        """Write an object over the version that it names.

        Raises:
            RefusedError: 404, or 409 when somebody wrote since.

        """
        with self._lock:
            name = item["metadata"]["name"]
            self.check_version(resource, name, item["metadata"].get("resourceVersion"))
            return self._put(resource, copy.deepcopy(item))

    def check_version(self, resource: str, name: str, version: str | None) -> None:
        """Refuse a version that is not the newest; none at all is taken."""
        with self._lock:
            current = self.get(resource, name)["metadata"]["resourceVersion"]
            if version and version != current:
                raise RefusedError(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {resource} "{name}": '
                    "the object has been modified; please apply your changes to the latest version",
                )

    def merge(self, resource: str, name: str, patch: Object) -> Object:
        """A merge patch: null takes a field away.

        Raises:
            RefusedError: 404.

        """
        with self._lock:
            item = self.get(resource, name)
            before = copy.deepcopy(item)
            _merge(item, patch)
            # A patch that changes nothing is no write.
            return self._put(resource, item) if item != before else item

    def remove(self, resource: str, name: str) -> None:
        """Forget an object; harmless when it is gone."""
        with self._lock:
            if self._objects.pop((resource, name), None) is not None:
                self._version += 1

    def _put(self, resource: str, item: Object) -> Object:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._objects[resource, item["metadata"]["name"]] = item
        return copy.deepcopy(item)


def _merge(into: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether a label selector of equalities takes these labels."""
    for part in filter(None, (piece.strip() for piece in selector.split(","))):
        if "!=" in part:
            key, _, value = part.partition("!=")
            if labels.get(key) == value:
                return False
        elif "=" in part:
            key, _, value = part.replace("==", "=").partition("=")
            if labels.get(key) != value:
                return False
        elif part not in labels:
            return False
    return True
