"""What all Dockerfiles have in common, by a linter and by reading them."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("services/*/Dockerfile"), ROOT / "libs/testing/Dockerfile"])
NAMES = [str(path.relative_to(ROOT)) for path in FILES]
#: The steps that depend on the service, and its port, in words that all have in common.
OWN = re.compile(r"services/\w+|libs/testing|sluice[-_.][\w.-]+")


def test_every_service_has_one():
    services = {path.parent for path in ROOT.glob("services/*/pyproject.toml")}
    assert {path.parent for path in FILES} == {*services, ROOT / "libs/testing"}


def test_the_linter_has_nothing_to_say():
    linter = Path(sysconfig.get_path("scripts"), "hadolint")
    done = subprocess.run(
        [linter, *FILES], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_it_copies_what_exists_and_belongs_to_it(name):
    text = (ROOT / name).read_text()
    own = str(Path(name).parent)
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        sources = [part for part in line.split()[:-1] if not part.startswith("--")]
        if "--from=" in line or sources == ["${WHEELS}"]:
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source.startswith(("images/", "libs/core", own, "pyproject.toml", "uv.lock"))


def test_they_differ_only_in_what_is_the_service_s_own():
    def common(path: Path) -> list[str]:
        kept = []
        for line in path.read_text().splitlines():
            if line.startswith(("#", "CMD", "EXPOSE")) or "SLUICE_HTTP_HOST" in line:
                continue
            if "opencontainers" in line and ("title" in line or "description" in line):
                continue
            kept.append(OWN.sub("OWN", line))
        return kept

    first = common(FILES[0])
    for path in FILES[1:]:
        assert common(path) == first, path


@pytest.mark.parametrize("name", NAMES)
def test_users_are_numbers_and_the_last_one_is_nobody_s_root(name):
    text = (ROOT / name).read_text()
    final = text[text.index("AS runtime") : text.index("AS dev-dependencies")]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["10001:10001"]
    assert text.rindex("FROM ") == text.index("FROM runtime AS final")


@pytest.mark.parametrize("name", NAMES)
def test_the_base_names_its_registry(name):
    """podman knows no other place for a short name than those that somebody has listed."""
    [base] = re.findall(r"^ARG BASE_IMAGE=(.*)$", (ROOT / name).read_text(), re.MULTILINE)
    assert base.startswith("docker.io/library/python:")


def test_nothing_else_goes_to_the_engine():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule for rule in rules if rule.startswith("!")} <= {
        *("!images", "!pyproject.toml", "!uv.lock", "!libs", "!services", "!wheels")
    }
