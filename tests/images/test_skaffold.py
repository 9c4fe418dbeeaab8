"""skaffold.yaml against what the repository has: no binary of skaffold is needed for that."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import yaml

from sluice_testing.require import require
from tests.chart import render

ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / "skaffold.yaml").read_text())
VALUES = yaml.safe_load((ROOT / "charts/sluice/values.yaml").read_text())
ARTIFACTS = CONFIG["build"]["artifacts"]
PROFILES = {profile["name"]: profile for profile in CONFIG["profiles"]}
RELEASE = CONFIG["deploy"]["helm"]["releases"][0]


def with_profile(name):
    """The configuration under a profile, its patches applied; each must find its place."""
    config = copy.deepcopy(CONFIG)
    for patch in PROFILES[name].get("patches", ()):
        *path, last = patch["path"].strip("/").split("/")
        place = config
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        assert patch["op"] == "add"
        assert last not in place
        place[last] = patch["value"]
    return config


def dockerfile(artifact):
    return (ROOT / artifact["docker"]["dockerfile"]).read_text()


def test_every_image_is_built_from_its_dockerfile():
    files = {artifact["docker"]["dockerfile"] for artifact in ARTIFACTS}
    on_disk = {str(path.relative_to(ROOT)) for path in ROOT.glob("services/*/Dockerfile")}
    assert files == on_disk | {"libs/testing/Dockerfile"}
    for artifact in ARTIFACTS:
        assert artifact["context"] == "."
        # As in `images/make.sh`: kind loads no image with a record of its build beside it.
        assert artifact["docker"]["cliFlags"] == ["--provenance=false"]
        assert f'title="{artifact["image"]}"' in dockerfile(artifact)


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda a: a["image"])
def test_code_is_synchronised_to_where_it_runs(artifact):
    text = dockerfile(artifact)
    if "sync" not in artifact:
        assert artifact["image"] == "sluice-sample-site"
        return
    [searched] = re.findall(r"^ENV PYTHONPATH=(.*)$", text, re.MULTILINE)
    landed = set()
    for rule in artifact["sync"]["manual"]:
        found = [p for p in ROOT.glob(rule["src"]) if p.suffix == ".py"]
        assert found, rule
        for path in found:
            name = str(path.relative_to(ROOT))
            assert name.startswith(rule["strip"])
            target = f"{rule['dest']}/{name.removeprefix(rule['strip'])}"
            [root] = [r for r in searched.split(":") if target.startswith(f"{r}/")]
            landed.add(root)
            # The image itself holds it at the same place: the copy that it starts with.
            source = root.removeprefix("/tmp/src/")  # noqa: S108  # a folder of the container
            assert f"COPY {source} /src/{source}" in text
            assert (ROOT / source / target.removeprefix(f"{root}/")).exists()
    assert landed == set(searched.split(":"))


def test_development_builds_the_stage_that_restarts():
    assert PROFILES["dev"]["activation"] == [{"command": "dev"}]
    for artifact in with_profile("dev")["build"]["artifacts"]:
        target = artifact["docker"].get("target")
        assert target == ("dev" if "sync" in artifact else None)
        if target:
            assert f"AS {target}\n" in dockerfile(artifact)


def test_production_builds_the_last_stage_and_pushes_it():
    config = with_profile("prod")
    assert PROFILES["prod"]["build"]["local"]["push"] is True
    assert not any("target" in artifact["docker"] for artifact in config["build"]["artifacts"])


@pytest.mark.parametrize("profile", ["dev", "prod"])
def test_values_files_exist(profile):
    release = with_profile(profile)["deploy"]["helm"]["releases"][0]
    assert (ROOT / release["chartPath"] / "Chart.yaml").exists()
    assert all((ROOT / name).exists() for name in release["valuesFiles"])


def test_every_image_is_handed_to_the_chart_under_a_value_that_it_has():
    given = RELEASE["setValueTemplates"]
    images = {artifact["image"] for artifact in ARTIFACTS}
    handed = set()
    for path, template in given.items():
        place = VALUES
        *above, last = path.split(".")
        for part in above:
            # A pool has what `workerDefaults` has.
            known = {**VALUES["workerDefaults"], **place} if place in POOLS else place
            assert part in known, path
            place = known[part]
        assert last in place, path
        kind, name = re.fullmatch(r"\{\{\.IMAGE_(REPO|TAG)_(\w+)\}\}", template).groups()
        assert kind == {"repository": "REPO", "tag": "TAG"}[last]
        image = name.replace("_", "-")
        component = re.sub(r"([A-Z])", lambda m: f"-{m[1].lower()}", above[-2])
        assert image == f"sluice-{component}"
        handed.add((image, kind))
    assert handed == {(image, kind) for image in images for kind in ("REPO", "TAG")}


POOLS = list(VALUES["workers"].values())


@pytest.mark.parametrize("profile", ["dev", "prod"])
def test_the_chart_runs_what_was_built(profile):
    require(render.helm(), "helm")
    release = with_profile(profile)["deploy"]["helm"]["releases"][0]
    built = {a["image"]: f"registry.test/{a['image']}:abc" for a in ARTIFACTS}
    sets = {**release.get("setValues", {})}
    for path, template in RELEASE["setValueTemplates"].items():
        name = template.split("_", 2)[2].rstrip("}").replace("_", "-")
        repository, _, tag = built[name].rpartition(":")
        sets[path] = repository if "REPO" in template else tag
    text = render.run(
        *("template", release["name"], str(ROOT / release["chartPath"])),
        *(part for name in release["valuesFiles"] for part in ("-f", str(ROOT / name))),
        *(part for path, value in sets.items() for part in ("--set", f"{path}={value}")),
    )
    objects = render.parse(text)
    own = {c["image"] for c in containers(objects) if "sluice" in c["image"]}
    # For trials only, and for production only; it also has a pool whose image its values name.
    missing = {"dev": "sluice-autoscaler", "prod": "sluice-sample-site"}[profile]
    assert own >= set(built.values()) - {built[missing]}
    services = {o["metadata"]["name"] for o in objects if o["kind"] == "Service"}
    assert CONFIG["portForward"][0]["resourceName"] in services
    for container in containers(objects):
        if container["image"] in set(built.values()) and "args" not in container:
            # What the dev stage starts is the image's own command.
            assert "command" not in container


def containers(objects):
    for found in objects:
        spec = found.get("spec", {})
        pod = spec if found["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
        yield from pod.get("containers", ())
