"""Ways through rendered objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

#: Kinds that make pods, and where their pod's template is.
_TEMPLATES = {"Deployment": ("spec", "template"), "Job": ("spec", "template"), "Pod": ()}


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Those of one kind, by name."""
    return {o["metadata"]["name"]: o for o in objects if o["kind"] == kind}


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Name of the owner, and the pod template (with `metadata` and `spec`)."""
    for found in objects:
        if found["kind"] in _TEMPLATES:
            template = found
            for step in _TEMPLATES[found["kind"]]:
                template = template[step]
            yield found["metadata"]["name"], template


def containers(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Name of the owner, pod template and container."""
    for name, template in pods(objects):
        for container in template["spec"]["containers"]:
            yield name, template, container


def env(container: Object) -> dict[str, Any]:
    """Variables of the container itself: the value, or where it comes from."""
    entries = container.get("env") or []
    found = {e["name"]: e.get("value", e.get("valueFrom")) for e in entries}
    assert len(found) == len(entries), "a variable is there twice"
    return found


def is_ours(container: Object) -> bool:
    """Whether it runs one of our images."""
    return "sluice-" in container["image"]
