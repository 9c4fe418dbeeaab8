"""`make images`: what it names is what the chart asks for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.chart.objects import containers, is_ours
from tests.chart.render import render

ROOT = Path(__file__).parents[2]
#: An engine that builds nothing and tells what it was asked for.
ENGINE = '#!/bin/sh\nwhile [ "$1" != -t ]; do shift; done\necho "$2"\n'


def built(folder, **env):
    engine = folder / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    done = subprocess.run(
        [ROOT / "images" / "make.sh"],
        env={"PATH": os.environ["PATH"], "ENGINE": str(engine), **env},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return set(done.stdout.split())


#: In place of docker: tells how it was asked to build.
DOCKER = '#!/bin/sh\n[ "$1" != build ] || echo "attest=${BUILDX_NO_DEFAULT_ATTESTATIONS:-yes}"\n'


def test_what_docker_builds_can_be_loaded_into_kind(tmp_path):
    """A record of the build beside an image is lost by `docker save`, and kind then refuses it."""
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert built(tmp_path, PATH=path, ENGINE="docker") == {"attest=1"}


def asked_for(**values):
    found = containers(render("minimal", **values))
    return {container["image"] for _, _, container in found if is_ours(container)}


def test_a_chart_without_values_asks_for_the_images_of_a_make_without_any(tmp_path):
    assert built(tmp_path) == asked_for()


def test_a_registry_and_a_tag_of_ones_own(tmp_path):
    registry = "registry.example.com/media/"
    names = built(tmp_path, PREFIX=registry, TAG="7")
    assert names == asked_for(image={"repository": f"{registry}sluice", "tag": "7"})
