"""The chart renders: lint, Kubernetes' own schemas, those of custom resources, goldens."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.chart.render import (
    CASES,
    CHART,
    GOLDENS,
    SCHEMA,
    canonical,
    parse,
    render,
    run,
    schema_with_settings,
    values_file,
)

#: What we write of these kinds, as strict as a server that prunes nothing.
CUSTOM = {
    kind: json.loads((Path(__file__).parent / "crds" / f"{kind}.json").read_text())
    for kind in ("ScaledObject", "TriggerAuthentication", "PodMonitor", "PrometheusRule")
}


def check_schema(found):
    if found["kind"] in CUSTOM:
        jsonschema.Draft7Validator(CUSTOM[found["kind"]]).validate(found)
    else:
        kubernetes_validate.validate(found, "1.37", strict=True)


def test_lint(case):
    assert "0 chart(s) failed" in run("lint", "--strict", str(CHART), "-f", str(values_file(case)))


def test_every_object_fits_its_schema(objects):
    for found in objects:
        check_schema(found)
        assert found["metadata"].get("namespace") is None, "the release's own is meant"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("ScaledObject", "spec.triggers.0.metadata.targetvalue"),
        ("ScaledObject", "spec.minReplicas"),
        ("PodMonitor", "spec.podMetricsEndpoints.0.prot"),
        ("Deployment", "spec.template.spec.containers.0.reources"),
    ],
)
def test_a_misspelt_key_does_not_fit(kind, path):
    case = "keda" if kind == "ScaledObject" else "production"
    found = next(o for o in render(case) if o["kind"] == kind)
    *steps, name = path.split(".")
    at = found
    for step in steps:
        at = at[int(step)] if step.isdigit() else at[step]
    at[name] = "1"
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check_schema(found)


def test_names_are_unique(objects):
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(names) == len(set(names))


def test_golden(case, objects):
    assert (GOLDENS / f"{case}.yaml").read_text() == canonical(objects), "run `make chart`"


def test_the_schema_knows_todays_settings():
    assert SCHEMA.read_text() == schema_with_settings(), "run `make chart`"


def test_an_upgrade_renders_too(case):
    upgrade = render(case, "--is-upgrade")
    for found in upgrade:
        check_schema(found)


def test_versions_agree():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version("sluice-core")
    assert set(CASES) == {p.name.removesuffix("-values.yaml") for p in (CHART / "ci").iterdir()}


def test_another_chart_may_have_this_one_among_its_dependencies(tmp_path):
    """helm hands it `global` then, and the condition that switches it."""
    dependency = {"name": "sluice", "version": "0.1.0", "condition": "sluice.enabled"}
    parent = {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    shutil.copytree(CHART, tmp_path / "charts" / "sluice")
    names = {
        on: [o["metadata"]["name"] for o in parse(run("template", "all", str(tmp_path), *values))]
        for on in ("true", "false")
        for values in [("--set", f"sluice.enabled={on},global.registry=x")]
    }
    assert "all-sluice-api" in names["true"]
    assert not names["false"]


@pytest.mark.parametrize("release", ["a" * 53, "media.of.the-town"])
def test_any_name_of_a_release_fits(release):
    text = run("template", release, str(CHART))
    for found in parse(text):
        assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", found["metadata"]["name"])
        for value in found["metadata"]["labels"].values():
            assert len(value) <= 63
