"""The alert rules by promtool: valid, silent just before, firing just after, told in full."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from sluice_cli.main import cli
from sluice_core.domain.metrics import METRICS, PREFIX, Kind
from sluice_testing.prometheus import promtool

from .alert_cases import CASES, Case
from .metrics_page import PAGE, page

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "charts/sluice/files/rules"
FILES = sorted(FOLDER.glob("*.yaml"))
RUNBOOK = ROOT / "docs/runbook.md"
#: What every scrape of a process adds.
TARGET = {"job": "sluice", "namespace": "media"}
PROCESS = {"instance": "10.0.0.1:9090", "pod": "sluice-api-1"}


def rules() -> list[dict[str, Any]]:
    return [
        rule
        for file in FILES
        for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in rules() if "record" in rule}


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(ALERTS)


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_says_all_that_a_person_needs(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    anchor = alert["annotations"]["runbook_url"].partition("#")[2]
    assert anchor == name.lower()


@pytest.mark.parametrize("name", sorted(CASES))
def test_silent_just_before_and_firing_just_after(name: str, tmp_path: Path) -> None:
    case, alert = CASES[name], ALERTS[name]
    assert case.fires == case.silent + 1
    labels = {"severity": alert["labels"]["severity"], **case.labels}
    if not case.bare:
        labels |= TARGET | (PROCESS if case.process else {})
    texts = {key: _filled(text, case, labels) for key, text in alert["annotations"].items()}
    test = {
        "rule_files": [str(file) for file in FILES],
        "evaluation_interval": "1m",
        "group_eval_order": ["sluice.records", "sluice.alerts"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": _scraped(series), "values": values}
                    for series, values in case.series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{case.silent}m", "alertname": name, "exp_alerts": []},
                    {
                        "eval_time": f"{case.fires}m",
                        "alertname": name,
                        "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts}],
                    },
                ],
            }
        ],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps(test), "utf-8")
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def _scraped(series: str) -> str:
    name, _, labels = series.partition("{")
    added = ",".join(f'{k}="{v}"' for k, v in {**TARGET, **PROCESS}.items())
    return f"{name}{{{added}{',' + labels[:-1] if labels else ''}}}"


def _filled(text: str, case: Case, labels: dict[str, str]) -> str:
    text = re.sub(r"{{ \$value[^}]*}}", case.value, text)
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)


# -- rules, runbook, metrics and code say the same ------------------------------------------------


def names_in(expression: str) -> set[str]:
    return set(re.findall(rf"\b({PREFIX}\w+|sluice:[\w:]+)", expression))


def exists(name: str) -> bool:
    if name in RECORDS:
        return True
    stem = name.removeprefix(PREFIX)
    if stem in METRICS:
        return True
    base = re.sub(r"_(bucket|sum|count)$", "", stem)
    return base in METRICS and METRICS[base].kind is Kind.HISTOGRAM


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_what_there_is(rule: dict[str, Any]) -> None:
    found = names_in(rule["expr"])
    assert found
    assert {name for name in found if not exists(name)} == set()
    for label, value in re.findall(r'(\w+)=~?"([^"]+)"', rule["expr"]):
        # Fixed values are of the catalogue's; patterns match at least one of them.
        sets = [
            METRICS[name.removeprefix(PREFIX)].labels.get(label, "")
            for name in found
            if name.removeprefix(PREFIX) in METRICS
        ]
        known = [one for values in sets if not isinstance(values, str) for one in values]
        if known:
            for part in value.split("|") if "[" not in value else [value]:
                assert any(re.fullmatch(part, one) for one in known), (label, part)


def test_the_runbook_has_a_heading_for_each_alert_and_no_other() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


def commands() -> list[str]:
    """Every command line of ours that the runbook tells people to type."""
    text = RUNBOOK.read_text("utf-8")
    typed = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", text) + text.splitlines()
    return sorted({one for one in typed if re.match(r"sluice [a-z]", one)})


@pytest.mark.parametrize("line", commands())
def test_the_runbook_names_commands_that_there_are(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    while isinstance(command, click.Group) and (words or not command.invoke_without_command):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    # Values stand for themselves; what the command would do is not done.
    with command.make_context(command.name, words, resilient_parsing=False) as context:
        assert context.params is not None


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    assert PAGE.read_text("utf-8") == page()
