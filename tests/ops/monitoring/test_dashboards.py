"""Every panel of every dashboard is asked of a real Prometheus that saw the system work."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sluice_core.adapters.db import counters
from sluice_core.adapters.db.engine import write
from sluice_core.domain.metrics import METRICS
from sluice_testing.prometheus import complaints
from sluice_testing.waiting import until

from .conftest import PATIENCE, Watched
from .dashboards import DASHBOARDS, FOLDER, text
from .test_rules import exists, names_in

ALL = {name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in DASHBOARDS}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, document in ALL.items()
    for panel in document["panels"]
]


def filled(expression: str) -> str:
    """As Grafana asks it, with all installations chosen."""
    return expression.replace("$__rate_interval", "5m").replace("$job", ".*")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_files_are_what_the_table_says(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text("utf-8") == text(name)
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(DASHBOARDS)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_and_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    for target in panel["targets"]:
        found = names_in(target["expr"])
        assert {name for name in found if not exists(name)} == set()
        assert len(re.findall(r"\$job", target["expr"])) >= len(found)
        assert target["legendFormat"]


def test_every_metric_is_on_a_dashboard_or_in_a_rule() -> None:
    rules = "".join(f.read_text("utf-8") for f in FOLDER.parent.joinpath("rules").iterdir())
    shown = names_in("".join(map(text, DASHBOARDS)) + rules)
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} | shown
    assert {m.full_name for m in METRICS.values()} - bases == set()


@pytest.mark.timeout(10 * PATIENCE)
def test_a_real_prometheus_answers_every_query_and_tells_alertmanager(worked: Watched) -> None:
    """One test, since what it needs is a whole installation and takes its time to start."""
    deadline = time.monotonic() + PATIENCE
    # Rates need two samples of what has just begun to count.
    while unanswered := list(_unanswered(worked)):
        assert time.monotonic() < deadline, unanswered
        time.sleep(1.0)
    _each_variable_has_values(worked)
    _promtool_finds_nothing_to_say(worked)
    _what_it_shows_is_what_happened(worked)
    _alertmanager_is_told(worked)


def _unanswered(worked: Watched) -> Iterator[str]:
    for name, document in ALL.items():
        for panel in document["panels"]:
            for target in panel["targets"]:
                found = worked.prometheus.query(filled(target["expr"]))
                legend = re.findall(r"{{(\w+)}}", target["legendFormat"])
                if " or vector(0)" in target["expr"]:
                    legend = []
                told = [one for one in found if one["value"][1] != "NaN"]
                if not told or any(label not in one["metric"] for one in told for label in legend):
                    yield f"{name}, {panel['title']}: {target['expr']} gives {found}"


def _each_variable_has_values(worked: Watched) -> None:
    for document in ALL.values():
        source, target = document["templating"]["list"]
        assert source["query"] == "prometheus"
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", target["definition"])
        assert found is not None
        assert worked.prometheus.label_values(found[2], found[1]) == ["sluice"]


def _promtool_finds_nothing_to_say(worked: Watched) -> None:
    for name, port in worked.ports.items():
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
        assert complaints(page) == "", name


def _what_it_shows_is_what_happened(worked: Watched) -> None:
    # Each process is asked at a moment of its own: what one has told, another tells a little later.
    for expression in (
        'sum(sluice_jobs_total{status="SUCCESS"}) == 4',
        'sum(sluice_jobs_total{status="CANCELED"}) == 1',
        # One link that was gone at once, and three that were given up after their second try.
        'sum(sluice_stage_failures_total{code="not_found"}) == 1',
        'sum(sluice_stage_failures_total{code="server_error"}) == 1 + 3 * 2',
        'sum(sluice_stage_retries_total{code="server_error"}) == 1 + 3',
        'sum(sluice_jobs_total{status="FAILED"}) == 4',
        'sum(sluice_queue_messages{state="dead"}) == 3',
        "sluice_download_bytes_total > 0",
        'sum(sluice_autoscaler_current_replicas{pool="transcoder"}) == 1',
        "sum(sluice_sse_clients) == 1",
    ):
        worked.prometheus.await_result(expression, patience=PATIENCE)


def _alertmanager_is_told(worked: Watched) -> None:
    with write(worked.engine) as connection:
        counters.add(connection, counters.DEAD_LETTERS_DROPPED, 5)
    name = "SluiceDeadLettersDropped"

    def told() -> list[dict[str, Any]]:
        found = worked.alertmanager.alerts()
        return [alert for alert in found if alert["labels"]["alertname"] == name]

    [alert] = until(told, timeout=PATIENCE)
    assert alert["status"]["state"] == "active"
    assert alert["labels"]["severity"] == "warning"
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
