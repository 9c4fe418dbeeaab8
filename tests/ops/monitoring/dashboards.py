"""The dashboards of the chart, made from `dashboards.toml`.

`python -m tests.ops.monitoring --write` renews the files.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "charts/sluice/files/dashboards"

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TITLES = {
    "overview": "Overview",
    "parse": "Parse",
    "download": "Download",
    "transcode": "Transcode",
    "autoscaler": "Autoscaler",
    "api": "API and SSE",
    "stores": "Stores",
}
_STAGES = ("parse", "download", "transcode")
_QUANTILES = (0.5, 0.95, 0.99)
#: Columns of Grafana's grid.
_WIDTH = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panels_of(name: str) -> list[dict[str, Any]]:
    """Panels of a dashboard as in the table, stages filled in."""
    if name not in _STAGES:
        return list(_TABLE[name])
    table = json.dumps(_TABLE["stage"]).replace("STAGE", name)
    return [*json.loads(table), *_TABLE.get(name, [])]


def queries_of(panel: dict[str, Any]) -> dict[str, str]:
    """Legend -> expression as Grafana gets it."""
    if "quantiles" in panel:
        buckets = panel["quantiles"]
        return {
            f"{q * 100:g} %": _full(f"histogram_quantile({q}, sum by (le) ({buckets}))")
            for q in _QUANTILES
        }
    return {legend: _full(expression) for legend, expression in panel["queries"].items()}


def _full(short: str) -> str:
    """Short forms written out."""
    text = re.sub(r"\brate\(([^()]+)\)", r"rate(\1[$__rate_interval])", short)
    text = text.replace("once(", "max without (instance, pod, container, endpoint) (")
    return re.sub(r"\b((?:sluice|process)[_:][\w:]+)(\{[^}]*\})?", _of_installation, text)


def _of_installation(found: re.Match[str]) -> str:
    more = f", {found[2][1:-1]}" if found[2] else ""
    return f'{found[1]}{{job=~"$job"{more}}}'


def document(name: str) -> dict[str, Any]:
    """One dashboard as Grafana imports it."""
    panels = panels_of(name)
    link = {"type": "dashboards", "title": "Sluice", "tags": ["sluice"], "asDropdown": True}
    return {
        "uid": f"sluice-{name}",
        "title": f"Sluice / {_TITLES[name]}",
        "tags": ["sluice"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _installation()]},
        "links": [{**link, "includeVars": True, "keepTime": True}],
        "panels": [
            _panel(number, panel, place)
            for number, (panel, place) in enumerate(zip(panels, _places(panels), strict=True), 1)
        ],
    }


DASHBOARDS = tuple(_TITLES)


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(document(name), indent=1) + "\n"


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _installation() -> dict[str, Any]:
    query = "label_values(sluice_up, job)"
    return {
        "name": "job",
        "label": "Installation",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "job"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    stat = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return {
        "id": number,
        "type": "stat" if panel.get("stat") else "timeseries",
        "title": panel["title"],
        "description": panel["description"],
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "options": stat if panel.get("stat") else {},
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for i, (legend, expression) in enumerate(queries_of(panel).items())
        ],
    }


def _places(panels: list[dict[str, Any]]) -> Iterator[dict[str, int]]:
    x = y = row = 0
    for panel in panels:
        width, height = (4, 5) if panel.get("stat") else (12, 8)
        if x + width > _WIDTH:
            x, y, row = 0, y + row, 0
        yield {"x": x, "y": y, "w": width, "h": height}
        x, row = x + width, max(row, height)
