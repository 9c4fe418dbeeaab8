"""docs/kubernetes.md speaks of objects, values, rights and sentences that there are."""

from __future__ import annotations

import re
import shlex

import pytest
import yaml

from tests.chart.objects import of_kind
from tests.chart.render import CHART, NAMESPACE, RELEASE, ROOT, parse, render, run

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.strip()
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.replace("\\\n", " ").splitlines()
]
YAML = [yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml"]


def test_the_values_are_taken(tmp_path):
    [values] = [found for found in YAML if "devDependencies" in found]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    rendered = parse(run("template", "sluice", str(CHART), "-f", str(tmp_path / "values.yaml")))
    secrets = set(re.findall(r"create secret generic (\S+)", PAGE))
    used = set(re.findall(r"'name': '(sluice-[a-z0-9]+)', 'key'", str(rendered)))
    assert secrets - {"sluice-api-key"} <= used


def test_what_is_to_be_watched_is_taken(tmp_path):
    [values] = [found for found in YAML if "podMonitor" in found]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    rendered = parse(run("template", "sluice", str(CHART), "-f", str(tmp_path / "values.yaml")))
    assert {"PodMonitor", "PrometheusRule"} <= {found["kind"] for found in rendered}


def test_the_role_is_shown_in_full():
    [shown] = [found for found in YAML if "rules" in found]
    role = of_kind(render("minimal"), "Role")["sluice-autoscaler"]
    assert shown["rules"] == role["rules"]


HELM = [c for c in COMMANDS if c.startswith("helm ") and "charts/sluice" in c]


@pytest.mark.parametrize("command", HELM)
def test_helms_flags_are_taken(command, tmp_path):
    words = shlex.split(command, comments=True)
    words = words[words.index("charts/sluice") + 1 :]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(next(f for f in YAML if "devDependencies" in f)))
    known = [str(values) if word == "values.yaml" else word for word in words]
    known = [word for word in known if not word.endswith("-values.yaml") and word != "-f"]
    # Of an upgrade alone.
    known = [word for word in known if word != "--reset-then-reuse-values"]
    rest = [part for word in known if word.endswith("values.yaml") for part in ("-f", word)]
    rest += [word for word in known if not word.endswith("values.yaml")]
    run("template", "sluice", str(CHART), *rest)


def test_inline_values_exist():
    """Names like `redis.passwordSecret` in the text."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = set(re.findall(r"`((?:[a-z][A-Za-z0-9]*\.)+[A-Za-z0-9]+)[`=]", PAGE))
    first = {name for name in found if name.partition(".")[0] in values}
    assert len(first) >= 15
    for name in first:
        at = values
        for part in name.split("."):
            assert part in at, name
            at = at[part]


def test_every_object_that_a_command_names_is_there():
    objects = render("minimal")
    for kind, names in {
        "Deployment": re.findall(r"deployments?[/ ](sluice-[a-z-]+)", " ".join(COMMANDS)),
        "Service": re.findall(r"svc/(\S+)", " ".join(COMMANDS)),
        "Secret": re.findall(r"get secret (\S+)", " ".join(COMMANDS)),
        "ScaledObject": re.findall(r"scaledobject (\S+)", " ".join(COMMANDS)),
    }.items():
        there = of_kind(objects if kind != "ScaledObject" else render("keda"), kind)
        assert set(names) <= set(there), kind
    labels = re.findall(r"-l (\S+?)=(\S+)", " ".join(COMMANDS))
    pods = [o["spec"]["template"]["metadata"]["labels"]
            for o in of_kind(objects, "Deployment").values()]  # fmt: skip
    for key, value in labels:
        assert any(found.get(key) == value for found in pods), (key, value)


def test_what_processes_say_is_what_they_say():
    """The table of reasons, against the code that gives them."""
    rows = re.findall(r"^\| (`.*) \| ", PAGE[PAGE.index("When a pod is not ready") :], re.MULTILINE)
    ours = re.findall(r"`((?:The|Redis) [^`]+)`", " ".join(rows))
    code = " ".join(p.read_text() for p in (ROOT / "libs/core/src").rglob("*.py"))
    code = re.sub(r'"\s+f?"', "", code) + " password authentication failed"
    assert len(ours) >= 8
    for sentence in ours:
        fixed = re.split(r"'|allkeys-lru|…", sentence)[0].strip()
        assert fixed.rstrip(":. ") in code, sentence


def test_names_of_release_and_namespace():
    assert RELEASE == "sluice"
    assert f"-n {RELEASE}" in PAGE
    assert NAMESPACE not in re.findall(r"-n (\S+)", PAGE)
